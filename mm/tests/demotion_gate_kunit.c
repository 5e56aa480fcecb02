// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of the demotion gate: its two decisions. Included by
 * mm/demotion_gate.c, so that they can stay static.
 */
#include <kunit/test.h>

/* A policy's gate is open from this many nodes with memory on. */
static const int demotion_gate_open_from[] = {
	[DEMOTION_GATE_AUTO]	= 2,
	[DEMOTION_GATE_ALWAYS]	= 0,
	[DEMOTION_GATE_NEVER]	= INT_MAX,
};

static void demotion_gate_wants_open_test(struct kunit *test)
{
	int policy, nodes;

	for (policy = 0; policy < ARRAY_SIZE(demotion_gate_open_from); policy++)
		for (nodes = 0; nodes <= 8; nodes++)
			KUNIT_EXPECT_EQ_MSG(test,
					    demotion_gate_wants_open(policy, nodes),
					    nodes >= demotion_gate_open_from[policy],
					    "policy %s, %d nodes with memory",
					    demotion_gate_policies[policy], nodes);
}

/* With an open gate, so not for 'never'. */
static const struct {
	enum demotion_gate_policy policy;
	bool changed;
	bool builds;
} demotion_cpu_event_rows[] = {
	{ DEMOTION_GATE_AUTO,	false,	false },
	{ DEMOTION_GATE_AUTO,	true,	true },
	{ DEMOTION_GATE_ALWAYS,	false,	true },
	{ DEMOTION_GATE_ALWAYS,	true,	true },
};

static void demotion_cpu_event_builds_test(struct kunit *test)
{
	nodemask_t built = NODE_MASK_NONE, now;
	int i;

	node_set(0, built);
	for (i = 0; i < ARRAY_SIZE(demotion_cpu_event_rows); i++) {
		const typeof(*demotion_cpu_event_rows) *row = &demotion_cpu_event_rows[i];

		now = built;
		if (row->changed)
			node_set(1, now);
		KUNIT_EXPECT_EQ_MSG(test, row->builds,
				    demotion_cpu_event_builds(row->policy, &built, &now),
				    "row %d, a node with CPUs more", i);
		KUNIT_EXPECT_EQ_MSG(test, row->builds,
				    demotion_cpu_event_builds(row->policy, &now, &built),
				    "row %d, a node with CPUs less", i);
	}
}

static struct kunit_case demotion_gate_cases[] = {
	KUNIT_CASE(demotion_gate_wants_open_test),
	KUNIT_CASE(demotion_cpu_event_builds_test),
	{}
};

static struct kunit_suite demotion_gate_suite = {
	.name = "demotion_gate",
	.test_cases = demotion_gate_cases,
};

kunit_test_suite(demotion_gate_suite);
