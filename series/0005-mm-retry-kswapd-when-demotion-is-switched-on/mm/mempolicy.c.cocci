// where: mm/migrate.c: ^\w.*\bnode_demotion\b
// where: ^bool numa_demotion_enabled\b

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
