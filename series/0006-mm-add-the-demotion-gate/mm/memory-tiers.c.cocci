// where: ^\w.*\bnode_demotion\b
// gone: ^void establish_demotion_targets\( -- make it static: those who call it from other files would build with the gate closed
// gone: ^[^*]*\bestablish_demotion_targets\(\) -- take the call out of your tree. After the series, have demotion_gate_node_event() called there, which builds if the gate is open, with the hotplug locks held and memory_tier_lock not

@header@
@@
 #include <linux/memory-tiers.h>
+#include <linux/demotion_gate.h>

// Otherwise there was no place for that fix.
@unlocked@
identifier memtier;
@@
memtier_hotplug_callback(...) {
<+...
 memtier = clear_node_memory_tier(...);
...+>
}

@removed depends on unlocked@
identifier memtier;
@@
memtier_hotplug_callback(...) {
<+...
 memtier = clear_node_memory_tier(...);
-	establish_demotion_targets();
 ...
 mutex_unlock(&memory_tier_lock);
 if (memtier)
 device_unregister(&memtier->dev);
+	demotion_gate_node_event();
...+>
}

@removed_locked depends on !unlocked@
expression nid;
@@
memtier_hotplug_callback(...) {
<+...
-	if (clear_node_memory_tier(nid))
-		establish_demotion_targets();
+	clear_node_memory_tier(nid);
 ...
 mutex_unlock(&memory_tier_lock);
+	demotion_gate_node_event();
...+>
}

@added@
expression nid;
identifier memtier;
@@
memtier_hotplug_callback(...) {
<+...
-	memtier = set_node_memory_tier(nid);
-	if (!IS_ERR(memtier))
-		establish_demotion_targets();
+	set_node_memory_tier(nid);
 ...
 mutex_unlock(&memory_tier_lock);
+	/* Also if it has no tier: the number of nodes has changed. */
+	demotion_gate_node_event();
...+>
}

// Without it there was no place for that fix, and the build still finds the top tier.
@toptier@
@@
memtier_refresh_toptier(...) { ... }

@boot depends on toptier@
identifier f =~ "^memory_tier_(late_)?init$";
@@
f(...) {
<+...
-establish_demotion_targets();
...+>
}

@boot_kept depends on !toptier@
identifier f =~ "^memory_tier_(late_)?init$";
@@
f(...) {
<+...
-establish_demotion_targets();
+	establish_demotion_targets(); /* gate or not: it finds the top tier */
...+>
}

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

@preferred depends on !early@
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

@allowed@
identifier targets;
declaration d;
statement S;
@@
node_get_allowed_targets(..., nodemask_t *targets) {
... when any
d
+
+	if (!demotion_gate_is_open()) {
+		*targets = NODE_MASK_NONE;
+		return;
+	}
+
S
... when any
}

@providers@
iterator name list_for_each_entry;
@@
 establish_demotion_targets(...) {
 ...
 struct memory_tier *memtier;
 ...
 }
+
+void demotion_targets_build(void)
+{
+	mutex_lock(&memory_tier_lock);
+	establish_demotion_targets();
+	mutex_unlock(&memory_tier_lock);
+}
+
+void demotion_targets_clear(void)
+{
+	struct memory_tier *memtier;
+	int node;
+
+	mutex_lock(&memory_tier_lock);
+	for (node = 0; node_demotion && node < nr_node_ids; node++)
+		node_demotion[node].preferred = NODE_MASK_NONE;
+	list_for_each_entry(memtier, &memory_tiers, list)
+		memtier->lower_tier_mask = NODE_MASK_NONE;
+	mutex_unlock(&memory_tier_lock);
+}
+
+void demotion_targets_get(int node, nodemask_t *targets)
+{
+	nodes_clear(*targets);
+	if (!demotion_gate_is_open() || !node_demotion ||
+	    !node_state(node, N_MEMORY))
+		return;
+
+	rcu_read_lock();
+	/* A build waits for readers between the old targets and the new. */
+	*targets = data_race(node_demotion[node].preferred);
+	rcu_read_unlock();
+}

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
