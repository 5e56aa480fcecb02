// SPDX-License-Identifier: GPL-2.0
#include <linux/migrate.h>
#include <linux/mm.h>

static int node_demotion[MAX_NUMNODES] __read_mostly;

/* Where to demote to. */
int next_demotion_node(int node)
{
	int target;

	/* Readers see the old target or none. */
	rcu_read_lock();
	target = READ_ONCE(node_demotion[node]);
	rcu_read_unlock();

	return target;
}

#if defined(CONFIG_HOTPLUG_CPU)
/* No targets. */
static void __disable_all_migrate_targets(void)
{
	int node;

	for_each_online_node(node)
		node_demotion[node] = NUMA_NO_NODE;
}

static void disable_all_migrate_targets(void)
{
	__disable_all_migrate_targets();
	synchronize_rcu();
}

/*
 * Callers need be
 * being single-threaded.
 */
static void __set_migration_target_nodes(void)
{
	int node;

	disable_all_migrate_targets();

	for_each_online_node(node) {
		node_demotion[node] = node + 1;
	}
}

/*
 * Not with get_online_mems() already.
 */
static void set_migration_target_nodes(void)
{
	get_online_mems();
	__set_migration_target_nodes();
	put_online_mems();
}

/*
 * Off and on again.
 *
 * These callbacks already hold get_online_mems().  So they call
 * set_migration_target_nodes().
 */
static int __meminit migrate_on_reclaim_callback(struct notifier_block *self,
						 unsigned long action, void *_arg)
{
	struct memory_notify *arg = _arg;

	if (arg->status_change_nid < 0)
		return notifier_from_errno(0);

	switch (action) {
	case MEM_GOING_OFFLINE:
		disable_all_migrate_targets();
		break;
	case MEM_OFFLINE:
	case MEM_ONLINE:
		/*
		 * Recalculate the target nodes once the node
		 * reaches its final state.
		 */
		__set_migration_target_nodes();
		break;
	case MEM_CANCEL_OFFLINE:
		/*
		 * MEM_GOING_OFFLINE disabled all the migration
		 * targets.  Enable them.
		 */
		__set_migration_target_nodes();
		break;
	}

	return notifier_from_errno(0);
}

/*
 * React to hotplug: a CPU came or went.
 */
static int migration_online_cpu(unsigned int cpu)
{
	set_migration_target_nodes();
	return 0;
}

static int migration_offline_cpu(unsigned int cpu)
{
	set_migration_target_nodes();
	return 0;
}

static int __init migrate_on_reclaim_init(void)
{
	int ret;

	ret = cpuhp_setup_state_nocalls(CPUHP_MM_DEMOTION_DEAD, "mm/demotion:offline",
					NULL, migration_offline_cpu);
	/* Rare. */
	WARN_ON(ret < 0);
	ret = cpuhp_setup_state(CPUHP_AP_MM_DEMOTION_ONLINE, "mm/demotion:online",
				migration_online_cpu, NULL);
	WARN_ON(ret < 0);

	hotplug_memory_notifier(migrate_on_reclaim_callback, 100);
	return 0;
}
late_initcall(migrate_on_reclaim_init);
#endif /* CONFIG_HOTPLUG_CPU */
