// where: ^\w.*\bnode_demotion\b
// unless: \bmemtier_refresh_toptier\(
// gone: = memtier->adistance_start \+

@header@
@@
+#include <linux/cpu.h>
 #include <linux/slab.h>

@read_once@
expression E;
@@
node_is_toptier(...) {
<+...
-	E <= top_tier_adistance
+	E <= READ_ONCE(top_tier_adistance)
...+>
}

@refresh@
iterator name for_each_node_state;
@@
+/**
+ * memtier_refresh_toptier() - Find the slowest tier that has a CPU
+ *
+ * Context: CPU or memory hotplug, or cpus_read_lock() held: nothing else keeps
+ *	    two callers apart. Takes no lock and does not sleep.
+ */
+void memtier_refresh_toptier(void)
+{
+	struct memory_tier *memtier;
+	int adistance = -1;
+	int node;
+
+	/* The list of the tiers is not safe to walk here, but this is. */
+	rcu_read_lock();
+	for_each_node_state(node, N_CPU) {
+		memtier = rcu_dereference(NODE_DATA(node)->memtier);
+		if (memtier)
+			adistance = max(adistance, memtier->adistance_start);
+	}
+	rcu_read_unlock();
+
+	/* Without memory beside a CPU, what was found last is as good as any. */
+	if (adistance >= 0)
+		WRITE_ONCE(top_tier_adistance, adistance + MEMTIER_CHUNK_SIZE - 1);
+}
+
 node_get_allowed_targets(...)
 { ... }

@out@
identifier memtier;
iterator name list_for_each_entry_reverse;
statement S;
@@
establish_demotion_targets(...) {
<+...
-	list_for_each_entry_reverse(memtier, &memory_tiers, list) S
...+>
}

@late@
@@
memory_tier_late_init(...) { ... }

@late_init depends on late@
@@
memory_tier_late_init(...) {
...
+	cpus_read_lock();
 get_online_mems();
...
 establish_demotion_targets();
+	memtier_refresh_toptier();
 put_online_mems();
+	cpus_read_unlock();
...
}

@early_init depends on !late@
@@
memory_tier_init(...) {
... when any
+	cpus_read_lock();
 mutex_lock(&memory_tier_lock);
... when any
 establish_demotion_targets();
+	memtier_refresh_toptier();
 mutex_unlock(&memory_tier_lock);
+	cpus_read_unlock();
... when any
}

@node_event@
@@
memtier_hotplug_callback(...) {
<+...
+		memtier_refresh_toptier();
 mutex_unlock(&memory_tier_lock);
...+>
}
