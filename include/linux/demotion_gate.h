/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _LINUX_DEMOTION_GATE_H
#define _LINUX_DEMOTION_GATE_H

#include <linux/jump_label.h>
#include <linux/nodemask.h>

struct kobject;

#ifdef CONFIG_DEMOTION_GATE

DECLARE_STATIC_KEY_FALSE(demotion_gate_key);

/**
 * demotion_gate_is_open() - Are there demotion targets to maintain and to use?
 *
 * Context: Any. The answer is stable only in a CPU or memory hotplug callback.
 * Return: true while the gate is open.
 */
static __always_inline bool demotion_gate_is_open(void)
{
	/* Inline at -Os too, where a call would cost more than the branch. */
	return static_branch_unlikely(&demotion_gate_key);
}

void __demotion_gate_cpu_event(void);

/**
 * demotion_gate_cpu_event() - A CPU came, went or was rolled back
 *
 * Context: A CPU hotplug callback that may sleep, node_states[N_CPU] up to date.
 *	    Waits for an RCU grace period if the targets are built.
 */
static __always_inline void demotion_gate_cpu_event(void)
{
	if (demotion_gate_is_open())
		__demotion_gate_cpu_event();
}

void demotion_gate_node_event(void);
void demotion_gate_add_sysfs(struct kobject *numa_kobj);

/*
 * Provided by the file that keeps node_demotion[]. To build waits for an RCU
 * grace period. Two callers that build or clear are kept apart only by being
 * CPU or memory hotplug callbacks, or by the locks of mm/demotion_gate.c.
 */
void demotion_targets_build(void);
/* All nr_node_ids entries, also those of nodes without memory. */
void demotion_targets_clear(void);
/* Where @node demotes to first. Any context; may be out of date on arrival. */
void demotion_targets_get(int node, nodemask_t *targets);

#else

static inline void demotion_gate_cpu_event(void) { }
static inline bool demotion_gate_is_open(void) { return false; }
static inline void demotion_gate_node_event(void) { }
static inline void demotion_gate_add_sysfs(struct kobject *numa_kobj) { }

#endif /* CONFIG_DEMOTION_GATE */

#endif /* _LINUX_DEMOTION_GATE_H */
