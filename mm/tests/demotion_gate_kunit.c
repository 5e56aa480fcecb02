// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of the demotion gate. Included by mm/demotion_gate.c, so that
 * its functions can stay static.
 */
#include <kunit/test.h>

/*
 * What shall happen, written down apart from the code. A policy's gate is
 * open from this many nodes with memory on.
 */
static const struct {
	enum demotion_gate_policy policy;
	int open_from;
} demotion_gate_opens[] = {
	{ DEMOTION_GATE_AUTO,	2 },
	{ DEMOTION_GATE_ALWAYS,	0 },
	{ DEMOTION_GATE_NEVER,	INT_MAX },
};

static void demotion_gate_opens_test(struct kunit *test)
{
	enum demotion_gate_policy policy;
	int i, nodes, open_from;

	for (i = 0; i < ARRAY_SIZE(demotion_gate_opens); i++) {
		policy = demotion_gate_opens[i].policy;
		open_from = demotion_gate_opens[i].open_from;
		for (nodes = 0; nodes <= 8; nodes++)
			KUNIT_EXPECT_EQ_MSG(test, nodes >= open_from,
					    demotion_gate_wants_open(policy, nodes),
					    "policy %s, %d nodes with memory",
					    demotion_gate_policies[policy], nodes);
	}
}

/* Does an event build? With nothing due, or with a build due. */
static const struct {
	enum demotion_gate_policy policy;
	enum demotion_gate_event event;
	bool cpu_nodes_changed;
	bool rebuilds[2];
} demotion_event_rows[] = {
	{ DEMOTION_GATE_AUTO,	DEMOTION_EVENT_MEMORY,	false,	{ false, true } },
	{ DEMOTION_GATE_AUTO,	DEMOTION_EVENT_MEMORY,	true,	{ false, true } },
	{ DEMOTION_GATE_AUTO,	DEMOTION_EVENT_CPU,	false,	{ false, true } },
	{ DEMOTION_GATE_AUTO,	DEMOTION_EVENT_CPU,	true,	{ true, true } },
	{ DEMOTION_GATE_ALWAYS,	DEMOTION_EVENT_MEMORY,	false,	{ true, true } },
	{ DEMOTION_GATE_ALWAYS,	DEMOTION_EVENT_MEMORY,	true,	{ true, true } },
	{ DEMOTION_GATE_ALWAYS,	DEMOTION_EVENT_CPU,	false,	{ true, true } },
	{ DEMOTION_GATE_ALWAYS,	DEMOTION_EVENT_CPU,	true,	{ true, true } },
};

static void demotion_event_rebuilds_test(struct kunit *test)
{
	const typeof(demotion_event_rows[0]) *row;
	bool rebuilds;
	int due;

	for (row = demotion_event_rows;
	     row < demotion_event_rows + ARRAY_SIZE(demotion_event_rows); row++) {
		for (due = 0; due <= 1; due++) {
			rebuilds = demotion_event_rebuilds(row->policy, row->event, due,
							   row->cpu_nodes_changed);
			KUNIT_EXPECT_EQ_MSG(test, rebuilds, row->rebuilds[due],
					    "row %zd, due %d",
					    row - demotion_event_rows, due);
		}
	}
}

/*
 * The rest runs the gate of the kernel under test: events are handed to it
 * as the callbacks do, with the locks that keep real ones away.
 */
struct demotion_gate_saved {
	enum demotion_gate_policy policy;
	unsigned long rebuilds;
	unsigned long skipped;
};

static int demotion_gate_test_init(struct kunit *test)
{
	struct demotion_gate_saved *saved;

	saved = kunit_kzalloc(test, sizeof(*saved), GFP_KERNEL);
	if (!saved)
		return -ENOMEM;
	saved->policy = READ_ONCE(demotion_gate_policy);
	test->priv = saved;
	return 0;
}

static void demotion_gate_test_exit(struct kunit *test)
{
	struct demotion_gate_saved *saved = test->priv;

	if (saved)
		demotion_gate_set_policy(saved->policy);
}

static void demotion_gate_lock_all(void)
{
	cpus_read_lock();
	get_online_mems();
	mutex_lock(&demotion_gate_lock);
}

static void demotion_gate_unlock_all(void)
{
	mutex_unlock(&demotion_gate_lock);
	put_online_mems();
	cpus_read_unlock();
}

static void demotion_gate_send(enum demotion_gate_event event)
{
	demotion_gate_lock_all();
	demotion_gate_handle(event);
	demotion_gate_unlock_all();
}

static void demotion_gate_send_node_event(void)
{
	cpus_read_lock();
	get_online_mems();
	demotion_gate_node_event();
	put_online_mems();
	cpus_read_unlock();
	demotion_gate_send(DEMOTION_EVENT_MEMORY);
}

/* Check by how much the counters moved since the last call. */
static void demotion_gate_expect(struct kunit *test, unsigned long rebuilds,
				 unsigned long skipped)
{
	struct demotion_gate_saved *saved = test->priv;

	KUNIT_EXPECT_EQ(test, demotion_rebuilds - saved->rebuilds, rebuilds);
	KUNIT_EXPECT_EQ(test, demotion_skipped - saved->skipped, skipped);
	saved->rebuilds = demotion_rebuilds;
	saved->skipped = demotion_skipped;
}

static void demotion_gate_start(struct kunit *test, enum demotion_gate_policy policy)
{
	struct demotion_gate_saved *saved = test->priv;

	demotion_gate_set_policy(policy);
	saved->rebuilds = demotion_rebuilds;
	saved->skipped = demotion_skipped;
}

static void demotion_gate_expect_no_targets(struct kunit *test)
{
	nodemask_t targets;
	int node;

	for (node = 0; node < nr_node_ids; node++) {
		demotion_targets_get(node, &targets);
		KUNIT_EXPECT_TRUE(test, nodes_empty(targets));
	}
}

static void demotion_gate_never_test(struct kunit *test)
{
	demotion_gate_start(test, DEMOTION_GATE_NEVER);
	KUNIT_EXPECT_FALSE(test, demotion_gate_is_open());
	KUNIT_EXPECT_TRUE(test, demotion_build_due);
	demotion_gate_expect_no_targets(test);

	demotion_gate_send(DEMOTION_EVENT_MEMORY);
	demotion_gate_send(DEMOTION_EVENT_CPU);
	demotion_gate_expect(test, 0, 2);
	demotion_gate_send_node_event();
	demotion_gate_expect(test, 0, 1);
	KUNIT_EXPECT_FALSE(test, demotion_gate_is_open());
}

static void demotion_gate_always_test(struct kunit *test)
{
	demotion_gate_start(test, DEMOTION_GATE_NEVER);
	demotion_gate_set_policy(DEMOTION_GATE_ALWAYS);
	KUNIT_EXPECT_TRUE(test, demotion_gate_is_open());
	demotion_gate_expect(test, 1, 0);

	demotion_gate_set_policy(DEMOTION_GATE_ALWAYS);
	demotion_gate_expect(test, 0, 0);
	demotion_gate_send(DEMOTION_EVENT_MEMORY);
	demotion_gate_send(DEMOTION_EVENT_CPU);
	demotion_gate_send_node_event();
	demotion_gate_expect(test, 3, 0);
}

/* 'auto' and back: what it does depends on the machine, but not by which way. */
static void demotion_gate_round_trip_test(struct kunit *test)
{
	bool several = num_node_state(N_MEMORY) > 1;

	demotion_gate_start(test, DEMOTION_GATE_NEVER);
	demotion_gate_set_policy(DEMOTION_GATE_AUTO);
	KUNIT_EXPECT_EQ(test, demotion_gate_is_open(), several);
	demotion_gate_expect(test, several, 0);

	demotion_gate_set_policy(DEMOTION_GATE_ALWAYS);
	demotion_gate_expect(test, !several, 0);
	demotion_gate_set_policy(DEMOTION_GATE_AUTO);
	KUNIT_EXPECT_EQ(test, demotion_gate_is_open(), several);
	demotion_gate_expect(test, 0, 0);
	KUNIT_EXPECT_EQ(test, demotion_build_due, !several);

	demotion_gate_send(DEMOTION_EVENT_MEMORY);
	demotion_gate_send(DEMOTION_EVENT_CPU);
	demotion_gate_expect(test, 0, 2);
	if (!several)
		demotion_gate_expect_no_targets(test);
}

/* A node event, or a cancelled one, leaves a build due that the next event does. */
static void demotion_gate_node_event_test(struct kunit *test)
{
	bool several = num_node_state(N_MEMORY) > 1;

	demotion_gate_start(test, DEMOTION_GATE_AUTO);
	demotion_gate_send_node_event();
	demotion_gate_expect(test, several, !several);
	demotion_gate_send(DEMOTION_EVENT_MEMORY);
	demotion_gate_expect(test, 0, 1);
}

/* A CPU event builds once for a changed N_CPU, and not again. */
static void demotion_gate_cpu_nodes_test(struct kunit *test)
{
	demotion_gate_start(test, DEMOTION_GATE_AUTO);
	if (!demotion_gate_is_open())
		kunit_skip(test, "one node with memory: nothing to build");

	demotion_gate_lock_all();
	nodes_complement(demotion_built_cpu_nodes, node_states[N_CPU]);
	demotion_gate_unlock_all();
	demotion_gate_send(DEMOTION_EVENT_MEMORY);
	demotion_gate_expect(test, 0, 1);
	demotion_gate_send(DEMOTION_EVENT_CPU);
	demotion_gate_expect(test, 1, 0);
	demotion_gate_send(DEMOTION_EVENT_CPU);
	demotion_gate_expect(test, 0, 1);
}

/* Closing cleared the targets behind the key as well. */
static void demotion_gate_clear_test(struct kunit *test)
{
	demotion_gate_start(test, DEMOTION_GATE_ALWAYS);
	demotion_gate_set_policy(DEMOTION_GATE_NEVER);

	demotion_gate_lock_all();
	static_branch_enable_cpuslocked(&demotion_gate_key);
	demotion_gate_expect_no_targets(test);
	static_branch_disable_cpuslocked(&demotion_gate_key);
	demotion_gate_unlock_all();
}

/* The key alone hides the targets, before they are cleared. */
static void demotion_gate_key_test(struct kunit *test)
{
	nodemask_t targets;
	bool any = false;
	int node;

	demotion_gate_start(test, DEMOTION_GATE_ALWAYS);
	demotion_gate_lock_all();
	for_each_node_state(node, N_MEMORY) {
		demotion_targets_get(node, &targets);
		any |= !nodes_empty(targets);
	}
	static_branch_disable_cpuslocked(&demotion_gate_key);
	demotion_gate_expect_no_targets(test);
	static_branch_enable_cpuslocked(&demotion_gate_key);
	demotion_gate_unlock_all();
	if (!any)
		kunit_skip(test, "no node has a target to hide");
}

static struct kunit_case demotion_gate_cases[] = {
	KUNIT_CASE(demotion_gate_opens_test),
	KUNIT_CASE(demotion_event_rebuilds_test),
	KUNIT_CASE(demotion_gate_never_test),
	KUNIT_CASE(demotion_gate_always_test),
	KUNIT_CASE(demotion_gate_round_trip_test),
	KUNIT_CASE(demotion_gate_node_event_test),
	KUNIT_CASE(demotion_gate_cpu_nodes_test),
	KUNIT_CASE(demotion_gate_clear_test),
	KUNIT_CASE(demotion_gate_key_test),
	{}
};

static struct kunit_suite demotion_gate_suite = {
	.name = "demotion_gate",
	.init = demotion_gate_test_init,
	.exit = demotion_gate_test_exit,
	.test_cases = demotion_gate_cases,
};

kunit_test_suite(demotion_gate_suite);
