// where: ^static void destroy_memory_tier\(
// gone: \bdestroy_memory_tier\(
// Another caller would drop the tier that it is handed.
// gone: \bclear_node_memory_tier\(

@destroy@
identifier memtier;
@@
-static void destroy_memory_tier(struct memory_tier *memtier)
-{
-list_del(&memtier->list);
-device_unregister(&memtier->dev);
-}

@clear@
typedef bool;
identifier node;
@@
-static bool clear_node_memory_tier(int node)
+/* Returns the tier that was left empty, to be unregistered by the caller. */
+static struct memory_tier *clear_node_memory_tier(int node)
{ ... }

@clear_result@
typedef bool;
identifier cleared;
@@
clear_node_memory_tier(...) {
-bool cleared = false;
+	struct memory_tier *emptied = NULL;
<+...
(
-return false;
+		return NULL;
|
-cleared = true;
|
-return cleared;
+	return emptied;
)
...+>
}

@clear_destroy@
identifier memtier;
@@
clear_node_memory_tier(...) {
<+...
-if (list_empty(&memtier->memory_types))
-	destroy_memory_tier(memtier);
+			if (list_empty(&memtier->memory_types)) {
+				list_del(&memtier->list);
+				emptied = memtier;
+			}
...+>
}

@notifier@
expression nid;
@@
memtier_hotplug_callback(...) {
<+...
-if (clear_node_memory_tier(nid))
-	establish_demotion_targets();
-mutex_unlock(&memory_tier_lock);
+		memtier = clear_node_memory_tier(nid);
+		establish_demotion_targets();
+		mutex_unlock(&memory_tier_lock);
+		/*
+		 * Waits for readers of the tier's files, which take the lock.
+		 * mem_hotplug_lock keeps a tier of the same name away.
+		 */
+		if (memtier)
+			device_unregister(&memtier->dev);
...+>
}
