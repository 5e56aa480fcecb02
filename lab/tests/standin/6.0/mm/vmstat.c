// SPDX-License-Identifier: GPL-2.0
#include <linux/compaction.h>
#include <linux/mm_inline.h>
#include <linux/migrate.h>

static int vmstat_cpu_online(unsigned int cpu)
{
	refresh_zone_stat_thresholds();

	if (!node_state(cpu_to_node(cpu), N_CPU)) {
		node_set_state(cpu_to_node(cpu), N_CPU);
		set_migration_target_nodes();
	}

	return 0;
}

static int vmstat_cpu_dead(unsigned int cpu)
{
	const struct cpumask *node_cpus;
	int node;

	node = cpu_to_node(cpu);
	node_cpus = cpumask_of_node(node);
	if (!cpumask_empty(node_cpus))
		return 0;

	node_clear_state(node, N_CPU);
	set_migration_target_nodes();

	return 0;
}
