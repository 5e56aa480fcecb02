// where: ^\w.*\bnode_demotion\b
// where: \bnuma_init_sysfs\(
// has: ^void demotion_retry_kswapd\( -- see why the fix that adds it has no place

@sysfs@
identifier numa_kobj;
@@
numa_init_sysfs(...) {
 ...
 numa_kobj = kobject_create_and_add("numa", ...);
 ... when any
+	demotion_gate_add_sysfs(numa_kobj);
 return 0;
 ... when any
}
