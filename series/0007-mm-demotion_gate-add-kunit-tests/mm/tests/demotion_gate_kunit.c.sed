# where: mm/memory-tiers.c: ^static .*\bnode_demotion\b
/^#include <kunit\/test\.h>$/a\
#include <linux/memory-tiers.h>
/^static struct kunit_case demotion_gate_cases\[\] = {$/i\
/* A CPU in a slow node makes it top tier, with the gate closed as well. */\
static void demotion_gate_top_tier_test(struct kunit *test)\
{\
	int node, slow = NUMA_NO_NODE;\
\
	demotion_gate_start(test, DEMOTION_GATE_NEVER);\
	for_each_node_state(node, N_MEMORY)\
		if (!node_is_toptier(node))\
			slow = node;\
	if (slow == NUMA_NO_NODE)\
		kunit_skip(test, "every node is top tier");\
\
	demotion_gate_lock_all();\
	node_set_state(slow, N_CPU);\
	demotion_gate_cpu_callback(0);\
	KUNIT_EXPECT_TRUE(test, node_is_toptier(slow));\
	node_clear_state(slow, N_CPU);\
	demotion_gate_cpu_callback(0);\
	KUNIT_EXPECT_FALSE(test, node_is_toptier(slow));\
	demotion_gate_unlock_all();\
}\
\
/* Reclaim asks by these, which look at the key themselves. */\
static void demotion_gate_lookup_test(struct kunit *test)\
{\
	int node, source = NUMA_NO_NODE;\
	nodemask_t targets;\
\
	demotion_gate_start(test, DEMOTION_GATE_ALWAYS);\
	demotion_gate_lock_all();\
	for_each_node_state(node, N_MEMORY)\
		if (next_demotion_node(node) != NUMA_NO_NODE)\
			source = node;\
	if (source != NUMA_NO_NODE) {\
		node_get_allowed_targets(NODE_DATA(source), &targets);\
		KUNIT_EXPECT_FALSE(test, nodes_empty(targets));\
		static_branch_disable_cpuslocked(&demotion_gate_key);\
		node_get_allowed_targets(NODE_DATA(source), &targets);\
		KUNIT_EXPECT_TRUE(test, nodes_empty(targets));\
		KUNIT_EXPECT_EQ(test, next_demotion_node(source), NUMA_NO_NODE);\
		static_branch_enable_cpuslocked(&demotion_gate_key);\
	}\
	demotion_gate_unlock_all();\
	if (source == NUMA_NO_NODE)\
		kunit_skip(test, "no node has a target to hide");\
}\

/^	KUNIT_CASE(demotion_gate_key_test),$/a\
	KUNIT_CASE(demotion_gate_top_tier_test),\
	KUNIT_CASE(demotion_gate_lookup_test),
