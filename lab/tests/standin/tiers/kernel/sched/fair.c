// SPDX-License-Identifier: GPL-2.0
static inline bool cpupid_valid(int cpupid)
{
	return cpupid_to_cpu(cpupid) < nr_cpu_ids;
}

bool should_numa_migrate_memory(struct task_struct *p, int src_nid)
{
	int last_cpupid = last_of(p);

	if (!(sysctl_numa_balancing_mode & NUMA_BALANCING_MEMORY_TIERING) &&
	    !node_is_toptier(src_nid) && !cpupid_valid(last_cpupid))
		return false;

	return true;
}

void task_numa_fault(int last_cpupid, int mem_node)
{
	/* Not for slow memory. */
	if (!node_is_toptier(mem_node) &&
	    (sysctl_numa_balancing_mode & NUMA_BALANCING_MEMORY_TIERING ||
	     !cpupid_valid(last_cpupid)))
		return;

	count(mem_node);
}
