// SPDX-License-Identifier: GPL-2.0
/*
 * The demotion gate: a static key in front of the demotion targets.
 *
 * Building the targets waits for an RCU grace period, and memory and CPU
 * hotplug would have it done although most machines that run a kernel with
 * CONFIG_NUMA have one node, hence nowhere to demote to. While the gate is
 * closed nothing is built and nobody is given a target.
 *
 * Locks, outermost first:
 *
 *	cpus_read_lock()
 *	  get_online_mems()
 *	    demotion_gate_lock
 *	      the lock of the tier code, where it has one
 *
 * CPU hotplug excludes memory hotplug and both exclude policy writers, which
 * hold the two read locks. This is what protects all of the state below;
 * demotion_gate_lock is what policy writers need against each other. The key
 * is flipped by policy writers, by the memory notifier for a node that comes
 * or goes, and once at boot. CPU callbacks run below cpus_write_lock(): they
 * never flip the key, and see a stable one.
 */
#define pr_fmt(fmt) "demotion_gate: " fmt

#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/debugfs.h>
#include <linux/demotion_gate.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/kobject.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/string.h>
#include <linux/sysfs.h>

enum demotion_gate_policy {
	DEMOTION_GATE_AUTO,
	DEMOTION_GATE_ALWAYS,
	DEMOTION_GATE_NEVER,
};

enum demotion_gate_event {
	DEMOTION_EVENT_MEMORY,
	DEMOTION_EVENT_CPU,
};

static const char * const demotion_gate_policies[] = {
	[DEMOTION_GATE_AUTO]	= "auto",
	[DEMOTION_GATE_ALWAYS]	= "always",
	[DEMOTION_GATE_NEVER]	= "never",
};

/*
 * After the tier code's own notifier, which has priority 100 and settles the
 * tiers of a node that comes or goes.
 */
#define DEMOTION_GATE_MEMORY_PRI	90

DEFINE_STATIC_KEY_FALSE(demotion_gate_key);

static DEFINE_MUTEX(demotion_gate_lock);
static enum demotion_gate_policy demotion_gate_policy = DEMOTION_GATE_AUTO;

/* The targets were cleared, or a node came or went, since the last build. */
static bool demotion_build_due = true;
/* node_states[N_CPU] as the last build saw it. */
static nodemask_t demotion_built_cpu_nodes;

/* Since boot. One of them moves per event, so hotplug keeps them consistent. */
static unsigned long demotion_rebuilds;
static unsigned long demotion_skipped;

/* Does @policy want the gate open with @memory_nodes nodes in N_MEMORY? */
static bool demotion_gate_wants_open(enum demotion_gate_policy policy,
				     int memory_nodes)
{
	if (policy == DEMOTION_GATE_AUTO)
		return memory_nodes > 1;
	return policy == DEMOTION_GATE_ALWAYS;
}

/* Does @event have the targets built again, given that the gate is open? */
static bool demotion_event_rebuilds(enum demotion_gate_policy policy,
				    enum demotion_gate_event event, bool due,
				    bool cpu_nodes_changed)
{
	if (policy == DEMOTION_GATE_ALWAYS || due)
		return true;
	/*
	 * Memory tiers prefer targets without CPUs; before there were tiers,
	 * the nodes with CPUs were where demotion starts.
	 */
	return event == DEMOTION_EVENT_CPU && cpu_nodes_changed;
}

/*
 * Context: a hotplug callback, or cpus_read_lock(), get_online_mems() and
 *	    demotion_gate_lock held. Sleeps for a grace period.
 */
static void demotion_gate_rebuild(void)
{
	demotion_targets_build();
	demotion_built_cpu_nodes = node_states[N_CPU];
	demotion_build_due = false;
	WRITE_ONCE(demotion_rebuilds, demotion_rebuilds + 1);
}

/*
 * Make the key follow the policy and the number of nodes with memory. A gate
 * that opens is left without targets: building them is the caller's part.
 *
 * static_branch_enable() and static_branch_disable() would take
 * cpus_read_lock() a second time, and deadlock if a CPU-hotplug writer waits
 * in between.
 */
static void demotion_gate_evaluate(void)
{
	bool open = demotion_gate_wants_open(demotion_gate_policy,
					     num_node_state(N_MEMORY));

	lockdep_assert_held(&demotion_gate_lock);
	lockdep_assert_cpus_held();

	if (open == demotion_gate_is_open())
		return;

	if (open) {
		static_branch_enable_cpuslocked(&demotion_gate_key);
		return;
	}

	/*
	 * The key first: readers stop looking at once, and what they could
	 * have seen of the clearing does not matter.
	 */
	static_branch_disable_cpuslocked(&demotion_gate_key);
	demotion_targets_clear();
	demotion_build_due = true;
}

/**
 * demotion_gate_node_event() - A node got its first or lost its last memory
 *
 * Also to be called where the targets were disabled because a node is about to
 * lose its last memory: it may keep it. Leaves it to the gate's own memory
 * notifier, which runs after this, to build the targets when the memory came,
 * went, or was kept, so that an event that opens the gate builds them once.
 *
 * Context: The tier code's memory notifier, without the lock of the tier code.
 */
void demotion_gate_node_event(void)
{
	mutex_lock(&demotion_gate_lock);
	demotion_gate_evaluate();
	demotion_build_due = true;
	mutex_unlock(&demotion_gate_lock);
}

/* Context: a hotplug callback. Sleeps for a grace period if it rebuilds. */
static void demotion_gate_handle(enum demotion_gate_event event)
{
	if (demotion_gate_is_open() &&
	    demotion_event_rebuilds(demotion_gate_policy, event,
				    demotion_build_due,
				    !nodes_equal(demotion_built_cpu_nodes,
						 node_states[N_CPU])))
		demotion_gate_rebuild();
	else
		WRITE_ONCE(demotion_skipped, demotion_skipped + 1);
}

static int demotion_gate_memory_callback(struct notifier_block *self,
					 unsigned long action, void *arg)
{
	switch (action) {
	case MEM_ONLINE:
	case MEM_OFFLINE:
	case MEM_CANCEL_OFFLINE:
		demotion_gate_handle(DEMOTION_EVENT_MEMORY);
		break;
	}

	return NOTIFY_OK;
}

static int demotion_gate_cpu_callback(unsigned int cpu)
{
	demotion_gate_handle(DEMOTION_EVENT_CPU);

	/*
	 * The top tier depends on node_states[N_CPU], and NUMA balancing asks
	 * for it with the gate closed as well. With one node it cannot change.
	 */
	if (!demotion_gate_is_open() && num_online_nodes() > 1)
		demotion_top_tier_refresh();

	return 0;
}

static int __init demotion_gate_setup(char *str)
{
	int policy = sysfs_match_string(demotion_gate_policies, str);

	if (policy < 0) {
		pr_warn("expected auto, always or never, got '%s': ignored\n",
			str);
		return 1;
	}
	demotion_gate_policy = policy;
	return 1;
}
__setup("demotion_gate=", demotion_gate_setup);

#ifdef CONFIG_SYSFS
static void demotion_gate_set_policy(enum demotion_gate_policy policy)
{
	cpus_read_lock();
	get_online_mems();
	mutex_lock(&demotion_gate_lock);

	WRITE_ONCE(demotion_gate_policy, policy);
	demotion_gate_evaluate();
	if (demotion_gate_is_open() && demotion_build_due)
		demotion_gate_rebuild();

	mutex_unlock(&demotion_gate_lock);
	put_online_mems();
	cpus_read_unlock();
}

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

	demotion_gate_set_policy(policy);

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

static int demotion_counter_get(void *counter, u64 *val)
{
	*val = READ_ONCE(*(unsigned long *)counter);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(demotion_counter_fops, demotion_counter_get, NULL,
			 "%llu\n");

static void __init demotion_gate_add_debugfs(void)
{
	struct dentry *dir = debugfs_create_dir("demotion_gate", NULL);

	debugfs_create_file_unsafe("rebuilds", 0444, dir, &demotion_rebuilds,
				   &demotion_counter_fops);
	debugfs_create_file_unsafe("skipped", 0444, dir, &demotion_skipped,
				   &demotion_counter_fops);
}

/* After all initcalls that put nodes into tiers, the latest a late_initcall(). */
static int __init demotion_gate_init(void)
{
	int ret;

	/*
	 * The callbacks first, so that what happens between them and the
	 * evaluation is covered by the one or the other. The CPU states call
	 * nothing for the CPUs that are online already: one build at most does.
	 */
	ret = cpuhp_setup_state_nocalls(CPUHP_MM_DEMOTION_DEAD,
					"mm/demotion:dead", NULL,
					demotion_gate_cpu_callback);
	if (ret >= 0)
		ret = cpuhp_setup_state_nocalls(CPUHP_AP_MM_DEMOTION_ONLINE,
						"mm/demotion:online",
						demotion_gate_cpu_callback,
						NULL);
	if (ret < 0)
		pr_warn("no CPU hotplug callbacks (%d): targets and top tier may lag behind\n",
			ret);
	hotplug_memory_notifier(demotion_gate_memory_callback,
				DEMOTION_GATE_MEMORY_PRI);

	cpus_read_lock();
	get_online_mems();
	mutex_lock(&demotion_gate_lock);
	demotion_gate_evaluate();
	/*
	 * Also if a node that came early has opened the gate: the nodes had
	 * no tiers yet.
	 */
	if (demotion_gate_is_open())
		demotion_gate_rebuild();
	mutex_unlock(&demotion_gate_lock);
	put_online_mems();
	cpus_read_unlock();

	demotion_gate_add_debugfs();

	return 0;
}
late_initcall_sync(demotion_gate_init);
