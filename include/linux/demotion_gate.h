/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_DEMOTION_GATE_H
#define _LINUX_DEMOTION_GATE_H

#include <linux/jump_label.h>
#include <linux/nodemask.h>

struct attribute_group;
struct kobject;

#ifdef CONFIG_DEMOTION_GATE

DECLARE_STATIC_KEY_FALSE(demotion_gate_key);

/**
 * demotion_gate_is_open() - Are there demotion targets to maintain and to use?
 *
 * Context: Any. The answer is stable only in a CPU or memory hotplug
 *	    callback: cpus_read_lock() and get_online_mems() do not keep a
 *	    policy writer out, which holds no more than they are.
 * Return: true while the gate is open.
 */
static __always_inline bool demotion_gate_is_open(void)
{
	/* Inline at -Os too, where a call would cost more than the branch. */
	return static_branch_unlikely(&demotion_gate_key);
}

void __demotion_gate_cpu_event(void);

/**
 * demotion_gate_cpu_event() - A CPU came or went
 *
 * To be called with node_states[N_CPU] up to date, and also for a CPU that
 * fails half-way and is rolled back.
 *
 * Context: A CPU hotplug callback that may sleep. Waits for an RCU grace
 *	    period if the targets are built.
 */
static __always_inline void demotion_gate_cpu_event(void)
{
	if (demotion_gate_is_open())
		__demotion_gate_cpu_event();
}

void demotion_gate_node_event(void);
void demotion_gate_add_sysfs(struct kobject *numa_kobj);

/*
 * Provided by the file that keeps node_demotion[], for the gate only. A caller
 * is a CPU or memory hotplug callback, or holds cpus_read_lock(),
 * get_online_mems() and the gate's own lock, as nothing else keeps two callers
 * apart. It does not hold the lock of the tier code.
 */

/**
 * demotion_targets_build() - Build the demotion targets
 *
 * Context: See above. Sleeps for an RCU grace period.
 */
void demotion_targets_build(void);

/**
 * demotion_targets_clear() - Leave no node a demotion target
 *
 * All nr_node_ids entries, also those of nodes without memory.
 *
 * Context: See above. May sleep, but waits for no grace period.
 */
void demotion_targets_clear(void);

/**
 * demotion_targets_get() - Which nodes does a node demote to first?
 * @node: the node
 * @targets: set to these nodes; empty if there are none
 *
 * Context: Any, none of the above is needed. The answer may be out of date
 *	    when it arrives.
 */
void demotion_targets_get(int node, nodemask_t *targets);

extern const struct attribute_group node_demotion_attr_group;

#else

static inline void demotion_gate_cpu_event(void)
{
}

static inline bool demotion_gate_is_open(void)
{
	return false;
}

static inline void demotion_gate_node_event(void)
{
}

static inline void demotion_gate_add_sysfs(struct kobject *numa_kobj)
{
}

#endif /* CONFIG_DEMOTION_GATE */

#endif /* _LINUX_DEMOTION_GATE_H */
