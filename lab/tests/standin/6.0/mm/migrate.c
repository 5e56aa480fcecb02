// SPDX-License-Identifier: GPL-2.0
#include <linux/migrate.h>
#include <linux/mm.h>

struct demotion_nodes {
	unsigned short nr;
	short nodes[4];
};

static struct demotion_nodes *node_demotion __read_mostly;

/* Where to demote to. */
int next_demotion_node(int node)
{
	struct demotion_nodes *nd;
	int target;

	if (!node_demotion)
		return NUMA_NO_NODE;

	nd = &node_demotion[node];
	/* Readers see the old targets or none. */
	rcu_read_lock();
	target = READ_ONCE(nd->nodes[0]);
	rcu_read_unlock();

	return target;
}

/* No targets. */
static void __disable_all_migrate_targets(void)
{
	int node;

	if (!node_demotion)
		return;

	for_each_online_node(node)
		node_demotion[node].nr = 0;
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
		node_demotion[node].nodes[0] = node + 1;
	}
}

/*
 * Not with get_online_mems() already.
 */
void set_migration_target_nodes(void)
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

void __init migrate_on_reclaim_init(void)
{
	node_demotion = kcalloc(nr_node_ids, sizeof(struct demotion_nodes),
				GFP_KERNEL);
	WARN_ON(!node_demotion);
	hotplug_memory_notifier(migrate_on_reclaim_callback, 100);
	/* For what is there at boot. */
	cpus_read_lock();
	set_migration_target_nodes();
	cpus_read_unlock();
}

bool numa_demotion_enabled = false;

#ifdef CONFIG_SYSFS
static ssize_t numa_demotion_enabled_store(struct kobject *kobj, struct kobj_attribute *attr,
					   const char *buf, size_t count)
{
	ssize_t ret;

	ret = kstrtobool(buf, &numa_demotion_enabled);
	if (ret)
		return ret;

	return count;
}

static int __init numa_init_sysfs(void)
{
	struct kobject *numa_kobj;
	int err;

	numa_kobj = kobject_create_and_add("numa", mm_kobj);
	if (!numa_kobj)
		return -ENOMEM;
	err = sysfs_create_group(numa_kobj, &numa_attr_group);
	if (err)
		goto delete_obj;
	return 0;

delete_obj:
	kobject_put(numa_kobj);
	return err;
}
#endif
