// where: \bcpupid_valid\(
// unless: \bcpupid_stale\(

@valid@
identifier cpupid;
@@
cpupid_valid(int cpupid)
{
-	return cpupid_to_cpu(cpupid) < nr_cpu_ids;
+	int cpu = cpupid_to_cpu(cpupid);
+
+	return cpu < nr_cpu_ids && cpu_possible(cpu);
}

@stale@
typedef bool;
identifier cpupid;
@@
 cpupid_valid(int cpupid)
 { ... }
+
+static inline bool cpupid_stale(int cpupid)
+{
+	/*
+	 * Neither unset nor a cpupid: an access time, left on a folio whose
+	 * node has become top tier. One that looks like a cpupid is harmless.
+	 */
+	return cpupid != (-1 & LAST_CPUPID_MASK) && !cpupid_valid(cpupid);
+}
+

@migrate@
expression C;
statement S;
identifier last_cpupid;
@@
should_numa_migrate_memory(...) {
<+...
+	if (cpupid_stale(last_cpupid))
+		return false;
+
 if (C && !cpupid_valid(last_cpupid)) S
...+>
}

@fault@
identifier last_cpupid, mem_node;
@@
task_numa_fault(...) {
<+...
-	if (!node_is_toptier(mem_node) && (sysctl_numa_balancing_mode & NUMA_BALANCING_MEMORY_TIERING || !cpupid_valid(last_cpupid)))
-		return;
+	if (!node_is_toptier(mem_node) &&
+	    (sysctl_numa_balancing_mode & NUMA_BALANCING_MEMORY_TIERING ||
+	     !cpupid_valid(last_cpupid)))
+		return;
+
+	if (cpupid_stale(last_cpupid))
+		return;
...+>
}
