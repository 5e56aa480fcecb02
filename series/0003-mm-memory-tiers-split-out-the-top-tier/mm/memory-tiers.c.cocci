// where: ^static .*\bnode_demotion\b
// gone: = memtier->adistance_start \+

@read_once@
expression E;
@@
node_is_toptier(...) {
<+...
-	E <= top_tier_adistance
+	E <= READ_ONCE(top_tier_adistance)
...+>
}

@call@
identifier memtier;
iterator name list_for_each_entry_reverse;
statement S;
@@
establish_demotion_targets(...) {
<+...
-	list_for_each_entry_reverse(memtier, &memory_tiers, list) S
+	refresh_top_tier();
+
...+>
}

@split@
identifier memtier;
@@
+/*
+ * The lowest tier with a CPU, and all above it, are top tier. Waits for
+ * nothing, so that it can be kept current where the targets are not.
+ */
+static void refresh_top_tier(void)
+{
+	struct memory_tier *memtier;
+	nodemask_t nodes;
+
+	lockdep_assert_held_once(&memory_tier_lock);
+
+	list_for_each_entry_reverse(memtier, &memory_tiers, list) {
+		nodes = get_memtier_nodemask(memtier);
+		if (nodes_intersects(nodes, node_states[N_CPU])) {
+			WRITE_ONCE(top_tier_adistance,
+				   memtier->adistance_start + MEMTIER_CHUNK_SIZE - 1);
+			break;
+		}
+	}
+}
+
 establish_demotion_targets(...) {
 ...
 struct memory_tier *memtier;
 ...
 }
