// where: \bcpupid_valid\(
// gone: node_is_toptier\(\w+\) && !cpupid_valid

@unset@
identifier cpupid;
@@
cpupid_valid(int cpupid)
{
+	/* Not accessed so far. The callers know this value. */
+	if (cpupid == (-1 & LAST_CPUPID_MASK))
+		return true;
+
	return cpupid_to_cpu(cpupid) < nr_cpu_ids;
}

@migrate_check@
identifier mode, src_nid, last_cpupid;
@@
-	if (!(mode & NUMA_BALANCING_MEMORY_TIERING) && !node_is_toptier(src_nid) && !cpupid_valid(last_cpupid))
+	/*
+	 * An access time may be left from before tiering mode was switched
+	 * off, or from before the node became top tier.
+	 */
+	if (!cpupid_valid(last_cpupid))
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
+	/* An access time that is left, see should_numa_migrate_memory(). */
+	if (!cpupid_valid(last_cpupid))
+		return;
