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
/* The key alone hides the targets, before they are cleared. */\
static void demotion_gate_key_test(struct kunit *test)\
{\
	nodemask_t targets;\
	int node;\
\
	demotion_gate_start(test, DEMOTION_GATE_ALWAYS);\
	demotion_gate_lock_all();\
	static_branch_disable_cpuslocked(&demotion_gate_key);\
	for_each_node_state(node, N_MEMORY) {\
		node_get_allowed_targets(NODE_DATA(node), &targets);\
		KUNIT_EXPECT_TRUE(test, nodes_empty(targets));\
	}\
	static_branch_enable_cpuslocked(&demotion_gate_key);\
	demotion_gate_unlock_all();\
}\

/^	KUNIT_CASE(demotion_gate_clear_test),$/a\
	KUNIT_CASE(demotion_gate_top_tier_test),\
	KUNIT_CASE(demotion_gate_key_test),
