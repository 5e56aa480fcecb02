// where: mm/memory-tiers.c: ^\w.*\bnode_demotion\b
// unless: \bmemtier_refresh_toptier\(

@header@
@@
 #include <linux/compaction.h>
+#include <linux/memory-tiers.h>

@online@
@@
vmstat_cpu_online(...) {
<+...
 node_set_state(cpu_to_node(cpu), N_CPU);
+	memtier_refresh_toptier();
...+>
}

@dead@
identifier node;
@@
vmstat_cpu_dead(...) {
...
 node_clear_state(node, N_CPU);
+	memtier_refresh_toptier();
...
}
