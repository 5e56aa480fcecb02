// where: \bcpupid_valid\(
// gone: node_is_toptier\(\w+\) && !cpupid_valid

@migrate_check@
identifier mode, src_nid, last_cpupid;
@@
-	if (!(mode & NUMA_BALANCING_MEMORY_TIERING) && !node_is_toptier(src_nid) && !cpupid_valid(last_cpupid))
+	/* A node that was not top tier a moment ago left an access time. */
+	if (last_cpupid != (-1 & LAST_CPUPID_MASK) && !cpupid_valid(last_cpupid))
 		return false;

@fault_check@
identifier mode, mem_node, last_cpupid;
@@
-	if (!node_is_toptier(mem_node) && (mode & NUMA_BALANCING_MEMORY_TIERING || !cpupid_valid(last_cpupid)))
-		return;
+	if (!node_is_toptier(mem_node) &&
+	    mode & NUMA_BALANCING_MEMORY_TIERING)
+		return;
+
+	/* A node that was not top tier a moment ago left an access time. */
+	if (last_cpupid != (-1 & LAST_CPUPID_MASK) && !cpupid_valid(last_cpupid))
+		return;
