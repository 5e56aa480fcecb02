// where: ^\w.*\bnode_demotion\b
// unless: \bkswapd_(failures|clear_hopeless)\b
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
