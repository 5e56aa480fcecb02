// where: mm/memory-tiers.c: ^\w.*\bnode_demotion\b
// unless: \bmemtier_refresh_toptier\(
// has: mm/memory-tiers.c: ^void demotion_retry_kswapd\( -- see why the fix that adds it has no place

@header@
@@
 #include <linux/compaction.h>
+#include <linux/demotion_gate.h>

@online@
@@
vmstat_cpu_online(...) {
...
+	demotion_gate_cpu_event();
 return 0;
}

@dead@
identifier node, node_cpus;
@@
vmstat_cpu_dead(...) {
...
-	if (!cpumask_empty(node_cpus))
-		return 0;
-	node_clear_state(node, N_CPU);
+	if (cpumask_empty(node_cpus))
+		node_clear_state(node, N_CPU);
+
+	demotion_gate_cpu_event();
 return 0;
}
