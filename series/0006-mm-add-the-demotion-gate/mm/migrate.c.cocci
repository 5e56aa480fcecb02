// where: ^\w.*\bnode_demotion\b
// gone: ^[^*]*set_migration_target_nodes\(\) -- take the call out of your tree. After the series, have demotion_gate_node_event() called there, which builds if the gate is open, with the hotplug locks held
//
// What a vendor's tree fills beside node_demotion[] (a table for promotion, say) is filled by the same build: it stays
// as it was while the gate is closed. Nodes that can't be demoted to have nothing that could be promoted from them.

@header@
@@
 #include <linux/migrate.h>
+#include <linux/demotion_gate.h>

// A statement before the declarations may return.
@early@
statement S;
@@
next_demotion_node(...) {
S
... when any
}

@first depends on early@
statement S;
@@
next_demotion_node(...) {
+	if (!demotion_gate_is_open())
+		return NUMA_NO_NODE;
+
S
... when any
}

@target depends on !early@
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
 ...
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

// A node has one target in 5.15 and 5.16, and several since.
@several@
identifier nd;
@@
next_demotion_node(...) {
... when any
struct demotion_nodes *nd;
... when any
}

@get_one depends on !several@
@@
 demotion_targets_build(...)
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

@get_several depends on several@
@@
 demotion_targets_build(...)
 {
 ...
 }
+
+void demotion_targets_get(int node, nodemask_t *targets)
+{
+	struct demotion_nodes *nd;
+	int i;
+
+	nodes_clear(*targets);
+	if (!demotion_gate_is_open() || !node_demotion ||
+	    !node_state(node, N_MEMORY))
+		return;
+
+	nd = &node_demotion[node];
+	rcu_read_lock();
+	/* A build waits for readers between the old targets and the new. */
+	for (i = 0; i < READ_ONCE(nd->nr); i++) {
+		int target = READ_ONCE(nd->nodes[i]);
+
+		if (target != NUMA_NO_NODE)
+			node_set(target, *targets);
+	}
+	rcu_read_unlock();
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

// Up to 5.16, and in 5.17 at first, two callbacks of its own have the targets built. Since then mm/vmstat.c does.
@callbacks@
@@
migration_online_cpu(...) { ... }

@cpu_event depends on callbacks@
identifier f =~ "^migration_(on|off)line_cpu$";
@@
f(...) {
<+...
-set_migration_target_nodes();
+demotion_gate_cpu_event();
...+>
}

@unlocked depends on callbacks@
@@
-static void set_migration_target_nodes(void) { ... }

@init_build depends on !callbacks@
@@
migrate_on_reclaim_init(...) {
...
-cpus_read_lock();
-set_migration_target_nodes();
-cpus_read_unlock();
}

@unlocked_global depends on !callbacks@
@@
-void set_migration_target_nodes(void) { ... }

// It was filled by the build that followed. The key is flipped before the first build, and readers look at once.
@uninitialised@
expression count, size, flags;
@@
migrate_on_reclaim_init(...) {
... when any
node_demotion = kmalloc_array(count, size, flags)
... when any
}

@zero depends on uninitialised@
@@
migrate_on_reclaim_init(...) {
<+...
-	node_demotion = kmalloc_array(nr_node_ids, sizeof(struct demotion_nodes), GFP_KERNEL);
+	/* The key is flipped before the first build. */
+	node_demotion = kcalloc(nr_node_ids, sizeof(struct demotion_nodes),
+				GFP_KERNEL);
...+>
}
