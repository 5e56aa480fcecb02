// SPDX-License-Identifier: GPL-2.0
/*
 * The demotion gate: a static key in front of the demotion targets.
 *
 * Building the targets waits for an RCU grace period, and memory and CPU
 * hotplug would have it done although most machines that run a kernel with
 * CONFIG_NUMA have one node, hence nowhere to demote to. While the gate is
 * closed nothing is built and nobody is given a target.
 *
 * Locks, outermost first: cpus_read_lock(), get_online_mems(),
 * demotion_gate_lock, the lock of the tier code. CPU hotplug excludes memory
 * hotplug and both exclude policy writers, which hold the two read locks. This
 * protects all of the state below; demotion_gate_lock is what policy writers
 * need against each other. CPU callbacks run below cpus_write_lock(): they
 * never flip the key, and see a stable one.
 */
#define pr_fmt(fmt) "demotion_gate: " fmt

#include <linux/cpu.h>
#include <linux/debugfs.h>
#include <linux/demotion_gate.h>
#include <linux/init.h>
#include <linux/kobject.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "internal.h"

enum demotion_gate_policy {
	DEMOTION_GATE_AUTO,
	DEMOTION_GATE_ALWAYS,
	DEMOTION_GATE_NEVER,
};

static const char * const demotion_gate_policies[] = {
	[DEMOTION_GATE_AUTO]	= "auto",
	[DEMOTION_GATE_ALWAYS]	= "always",
	[DEMOTION_GATE_NEVER]	= "never",
};

DEFINE_STATIC_KEY_FALSE(demotion_gate_key);

static DEFINE_MUTEX(demotion_gate_lock);
static enum demotion_gate_policy demotion_gate_policy = DEMOTION_GATE_AUTO;
/* node_states[N_CPU] as the last build saw it. */
static nodemask_t demotion_built_cpu_nodes;
static unsigned long demotion_rebuilds;

/* Does @policy want the gate open with @memory_nodes nodes in N_MEMORY? */
static bool demotion_gate_wants_open(enum demotion_gate_policy policy,
				     int memory_nodes)
{
	if (policy == DEMOTION_GATE_AUTO)
		return memory_nodes > 1;
	return policy == DEMOTION_GATE_ALWAYS;
}

/*
 * Does a CPU event have the targets built again, if the gate is open? Memory
 * tiers prefer targets without CPUs; before there were tiers, the nodes with
 * CPUs were where demotion starts.
 */
static bool demotion_cpu_event_builds(enum demotion_gate_policy policy,
				      const nodemask_t *built_cpu_nodes,
				      const nodemask_t *cpu_nodes)
{
	return policy == DEMOTION_GATE_ALWAYS ||
	       !nodes_equal(*built_cpu_nodes, *cpu_nodes);
}

/*
 * Context: a hotplug callback, or cpus_read_lock(), get_online_mems() and
 *	    demotion_gate_lock held. Sleeps for a grace period.
 */
static void demotion_gate_build(void)
{
	demotion_targets_build();
	demotion_built_cpu_nodes = node_states[N_CPU];
	demotion_rebuilds++;
}

/*
 * Make the key follow the policy and the number of nodes with memory, and the
 * targets the key. @build has them built also if the gate was open before.
 */
static void demotion_gate_update(bool build)
{
	bool was_open = demotion_gate_is_open();
	bool open = demotion_gate_wants_open(demotion_gate_policy,
					     num_node_state(N_MEMORY));

	lockdep_assert_held(&demotion_gate_lock);
	lockdep_assert_cpus_held();

	/* Callers hold cpus_read_lock(): to take it twice can deadlock. */
	if (was_open && !open) {
		/* The key first: readers stop looking at once. */
		static_branch_disable_cpuslocked(&demotion_gate_key);
		demotion_targets_clear();
	} else if (open && !was_open) {
		static_branch_enable_cpuslocked(&demotion_gate_key);
		demotion_gate_build();
		/* Without targets, a kswapd may have given up meanwhile. */
		demotion_retry_kswapd();
	} else if (open && build) {
		demotion_gate_build();
	}
}

static void demotion_gate_set_policy(enum demotion_gate_policy policy,
				     bool build)
{
	cpus_read_lock();
	get_online_mems();
	mutex_lock(&demotion_gate_lock);
	WRITE_ONCE(demotion_gate_policy, policy);
	demotion_gate_update(build);
	mutex_unlock(&demotion_gate_lock);
	put_online_mems();
	cpus_read_unlock();
}

/**
 * demotion_gate_node_event() - A node got its first or lost its last memory
 *
 * Also if it keeps its last memory after all, where the targets were disabled
 * when it was about to lose it.
 *
 * Context: The tier code's memory notifier, without the lock of the tier code.
 *	    Waits for an RCU grace period if the targets are built.
 */
void demotion_gate_node_event(void)
{
	mutex_lock(&demotion_gate_lock);
	/* With 'always' it is the gate's own notifier, run later, that builds. */
	demotion_gate_update(demotion_gate_policy != DEMOTION_GATE_ALWAYS);
	mutex_unlock(&demotion_gate_lock);
}

/* Behind the key, below cpus_write_lock(). See demotion_gate_cpu_event(). */
void __demotion_gate_cpu_event(void)
{
	if (demotion_cpu_event_builds(demotion_gate_policy,
				      &demotion_built_cpu_nodes,
				      &node_states[N_CPU]))
		demotion_gate_build();
}

static int demotion_gate_memory_callback(struct notifier_block *self,
					 unsigned long action, void *arg)
{
	if (demotion_gate_policy == DEMOTION_GATE_ALWAYS &&
	    (action == MEM_ONLINE || action == MEM_OFFLINE ||
	     action == MEM_CANCEL_OFFLINE))
		demotion_gate_build();

	return NOTIFY_OK;
}

static int __init demotion_gate_setup(char *str)
{
	int policy = sysfs_match_string(demotion_gate_policies, str);

	if (policy < 0)
		pr_warn("expected auto, always or never, got '%s': ignored\n",
			str);
	else
		demotion_gate_policy = policy;
	return 1;
}
__setup("demotion_gate=", demotion_gate_setup);

#ifdef CONFIG_SYSFS
static ssize_t policy_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	enum demotion_gate_policy policy = READ_ONCE(demotion_gate_policy);
	ssize_t len = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(demotion_gate_policies); i++)
		len += sysfs_emit_at(buf, len, i == policy ? "%s[%s]" : "%s%s",
				     i ? " " : "", demotion_gate_policies[i]);
	len += sysfs_emit_at(buf, len, "\n");

	return len;
}

static ssize_t policy_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t count)
{
	int policy;

	/* Else all that follows an embedded NUL would pass unseen. */
	if (strlen(buf) != count)
		return -EINVAL;

	policy = sysfs_match_string(demotion_gate_policies, buf);
	if (policy < 0)
		return -EINVAL;

	demotion_gate_set_policy(policy, false);
	return count;
}

static ssize_t open_show(struct kobject *kobj, struct kobj_attribute *attr,
			 char *buf)
{
	return sysfs_emit(buf, "%d\n", demotion_gate_is_open());
}

static struct kobj_attribute demotion_gate_policy_attr = __ATTR_RW(policy);
static struct kobj_attribute demotion_gate_open_attr = __ATTR_RO(open);

static struct attribute *demotion_gate_attrs[] = {
	&demotion_gate_policy_attr.attr,
	&demotion_gate_open_attr.attr,
	NULL
};

static const struct attribute_group demotion_gate_attr_group = {
	.name = "demotion_gate",
	.attrs = demotion_gate_attrs,
};

/**
 * demotion_gate_add_sysfs() - Add the gate's files to /sys/kernel/mm/numa
 * @numa_kobj: that directory
 *
 * Context: Process context, at boot. The gate works without its files, so a
 *	    failure is only reported.
 */
void __init demotion_gate_add_sysfs(struct kobject *numa_kobj)
{
	if (sysfs_create_group(numa_kobj, &demotion_gate_attr_group))
		pr_err("failed to create the sysfs group\n");
}
#endif /* CONFIG_SYSFS */

/* After all initcalls that put nodes into tiers, the latest a late_initcall(). */
static int __init demotion_gate_init(void)
{
	/* After the tier code's notifiers, which settle the tiers of a node. */
	hotplug_memory_notifier(demotion_gate_memory_callback, 0);

	/* An early node may have opened the gate before all were in tiers. */
	demotion_gate_set_policy(demotion_gate_policy, true);

	debugfs_create_ulong("rebuilds", 0444,
			     debugfs_create_dir("demotion_gate", NULL),
			     &demotion_rebuilds);
	return 0;
}
late_initcall_sync(demotion_gate_init);
