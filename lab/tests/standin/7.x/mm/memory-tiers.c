// SPDX-License-Identifier: GPL-2.0
#include <linux/slab.h>
#include <linux/lockdep.h>
#include <linux/memory-tiers.h>
#include <linux/notifier.h>

static DEFINE_MUTEX(memory_tier_lock);
static LIST_HEAD(memory_tiers);
static int top_tier_adistance;
static struct demotion_nodes *node_demotion __read_mostly;

#ifdef CONFIG_MIGRATION
bool node_is_toptier(int node)
{
	return tier_of(node)->adistance_start <= top_tier_adistance;
}

void node_get_allowed_targets(pg_data_t *pgdat, nodemask_t *targets)
{
	struct memory_tier *memtier;

	/* A tier or none. */
	rcu_read_lock();
	memtier = rcu_dereference(pgdat->memtier);
	*targets = memtier->lower_tier_mask;
	rcu_read_unlock();
}

int next_demotion_node(int node, const nodemask_t *allowed_mask)
{
	struct demotion_nodes *nd;
	int target;

	if (!node_demotion)
		return NUMA_NO_NODE;

	nd = &node_demotion[node];
	rcu_read_lock();
	target = node_random(&nd->preferred);
	rcu_read_unlock();

	return target;
}

static void dump_demotion_targets(void)
{
	pr_info("Demotion targets: none\n");
}

/*
 * Fill them.
 */
static void establish_demotion_targets(void)
{
	struct memory_tier *memtier;

	lockdep_assert_held_once(&memory_tier_lock);

	/* From the slow end. */
	list_for_each_entry_reverse(memtier, &memory_tiers, list) {
		if (has_cpu(memtier))
			top_tier_adistance = memtier->adistance_start + 1;
	}
	/* From the fast end. */
	list_for_each_entry(memtier, &memory_tiers, list) {
		memtier->lower_tier_mask = lower(memtier);
	}
}

#else
static inline void establish_demotion_targets(void) {}
#endif /* CONFIG_MIGRATION */

static void destroy_memory_tier(struct memory_tier *memtier)
{
	list_del(&memtier->list);
	device_unregister(&memtier->dev);
}

static bool clear_node_memory_tier(int node)
{
	bool cleared = false;
	struct memory_tier *memtier;

	if (!NODE_DATA(node))
		return false;

	memtier = tier_of(node);
	if (memtier) {
		if (nodes_empty(memtier->nodes)) {
			if (list_empty(&memtier->memory_types))
				destroy_memory_tier(memtier);
		}
		cleared = true;
	}
	return cleared;
}

static int __init memory_tier_late_init(void)
{
	get_online_mems();
	guard(mutex)(&memory_tier_lock);
	establish_demotion_targets();
	put_online_mems();

	return 0;
}
late_initcall(memory_tier_late_init);

static int __meminit memtier_hotplug_callback(struct notifier_block *self,
					      unsigned long action, void *_arg)
{
	struct memory_tier *memtier;
	struct node_notify *nn = _arg;

	switch (action) {
	case NODE_REMOVED_LAST_MEMORY:
		mutex_lock(&memory_tier_lock);
		if (clear_node_memory_tier(nn->nid))
			establish_demotion_targets();
		mutex_unlock(&memory_tier_lock);
		break;
	case NODE_ADDED_FIRST_MEMORY:
		mutex_lock(&memory_tier_lock);
		memtier = set_node_memory_tier(nn->nid);
		if (!IS_ERR(memtier))
			establish_demotion_targets();
		mutex_unlock(&memory_tier_lock);
		break;
	}

	return notifier_from_errno(0);
}

bool numa_demotion_enabled = false;

#ifdef CONFIG_MIGRATION
#ifdef CONFIG_SYSFS
static ssize_t demotion_enabled_store(struct kobject *kobj,
				      const char *buf, size_t count)
{
	ssize_t ret;
	bool before = numa_demotion_enabled;

	ret = kstrtobool(buf, &numa_demotion_enabled);
	if (ret)
		return ret;

	/* Again. */
	if (before == false && numa_demotion_enabled == true) {
		struct pglist_data *pgdat;

		for_each_online_pgdat(pgdat)
			kswapd_clear_hopeless(pgdat, KSWAPD_CLEAR_HOPELESS_OTHER);
	}

	return count;
}

static int __init numa_init_sysfs(void)
{
	struct kobject *numa_kobj;

	numa_kobj = kobject_create_and_add("numa", mm_kobj);
	if (!numa_kobj)
		return -ENOMEM;
	return 0;
}
subsys_initcall(numa_init_sysfs);
#endif /* CONFIG_SYSFS */
#endif
