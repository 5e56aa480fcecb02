// where: \bkswapd_clear_hopeless\(

@split@
identifier before, pgdat;
iterator name for_each_online_pgdat;
@@
demotion_enabled_store(...) {
<+...
-	if (before == false && numa_demotion_enabled == true) {
-		struct pglist_data *pgdat;
-		for_each_online_pgdat(pgdat)
-			kswapd_clear_hopeless(pgdat, KSWAPD_CLEAR_HOPELESS_OTHER);
-	}
+	if (!before)
+		demotion_retry_kswapd();
...+>
}
