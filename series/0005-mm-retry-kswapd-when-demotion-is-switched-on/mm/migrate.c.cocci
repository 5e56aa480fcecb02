// where: ^\w.*\bnode_demotion\b
// where: ^bool\b.*\bnuma_demotion_enabled\b
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
