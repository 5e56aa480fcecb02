// where: ^\w.*\bnode_demotion\b
// unless: \bkswapd_clear_hopeless\b|atomic_set\(&pgdat->kswapd_failures
// unless: \bdemotion_retry_kswapd\(

@store@
identifier f =~ "demotion_enabled_store$";
@@
f(...) {
<+...
+	demotion_retry_kswapd();
+
 return count;
...+>
}
