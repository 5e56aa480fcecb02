// where: mm/migrate.c: ^\w.*\bnode_demotion\b
// where: \bset_migration_target_nodes\(
// gone: \bset_migration_target_nodes\(

@header@
@@
+#include <linux/demotion_gate.h>
 #include <linux/migrate.h>

@online@
expression E;
@@
vmstat_cpu_online(...) {
...
-	if (E) {
-		node_set_state(cpu_to_node(cpu), N_CPU);
-		set_migration_target_nodes();
-	}
+	if (E)
+		node_set_state(cpu_to_node(cpu), N_CPU);
+
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
-	set_migration_target_nodes();
+	if (cpumask_empty(node_cpus))
+		node_clear_state(node, N_CPU);
+
+	demotion_gate_cpu_event();
 return 0;
}
