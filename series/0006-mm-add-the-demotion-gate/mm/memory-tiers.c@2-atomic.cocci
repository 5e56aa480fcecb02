// where: \batomic_set\(&pgdat->kswapd_failures

@split@
identifier before, pgdat;
iterator name for_each_online_pgdat;
@@
demotion_enabled_store(...) {
<+...
-	if (before == false && numa_demotion_enabled == true) {
-		struct pglist_data *pgdat;
-		for_each_online_pgdat(pgdat)
-			atomic_set(&pgdat->kswapd_failures, 0);
-	}
+	if (!before)
+		demotion_retry_kswapd();
...+>
}
