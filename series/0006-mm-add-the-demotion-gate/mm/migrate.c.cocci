// where: ^static .*\bnode_demotion\b
// gone: set_migration_target_nodes\(\);

@header@
@@
 #include <linux/migrate.h>
+#include <linux/demotion_gate.h>

@target@
declaration d;
statement S;
@@
next_demotion_node(...) {
... when any
d
+
+	if (!demotion_gate_is_open())
+		return NUMA_NO_NODE;
+
S
... when any
}

@clear@
identifier node;
iterator name for_each_online_node;
statement S;
@@
-static void __disable_all_migrate_targets(void)
+void demotion_targets_clear(void)
 {
 int node;
-for_each_online_node(node)
+for (node = 0; node < nr_node_ids; node++)
 S
 }

@clear_callers@
@@
-__disable_all_migrate_targets();
+demotion_targets_clear();

@build@
@@
-static void __set_migration_target_nodes(void)
+void demotion_targets_build(void)
 {
 ...
 }
+
+void demotion_targets_get(int node, nodemask_t *targets)
+{
+	int target = NUMA_NO_NODE;
+
+	if (node_state(node, N_MEMORY))
+		target = next_demotion_node(node);
+
+	nodes_clear(*targets);
+	if (target != NUMA_NO_NODE)
+		node_set(target, *targets);
+}

@going@
@@
migrate_on_reclaim_callback(...) {
<+...
-	disable_all_migrate_targets();
+	if (demotion_gate_is_open())
+		disable_all_migrate_targets();
...+>
}

@node_event@
@@
migrate_on_reclaim_callback(...) {
<+...
-	__set_migration_target_nodes();
+	demotion_gate_node_event();
...+>
}

@cpu_event@
@@
-set_migration_target_nodes();
+demotion_gate_cpu_event();

@unlocked@
@@
-static void set_migration_target_nodes(void) { ... }

@init@
@@
migrate_on_reclaim_init(...) {
<+...
-	ret = cpuhp_setup_state(CPUHP_AP_MM_DEMOTION_ONLINE, "mm/demotion:online", migration_online_cpu, NULL);
+	ret = cpuhp_setup_state_nocalls(CPUHP_AP_MM_DEMOTION_ONLINE,
+					"mm/demotion:online",
+					migration_online_cpu, NULL);
...+>
}
