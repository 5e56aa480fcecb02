/^TEST_GEN_FILES += compaction_test$/a\
TEST_GEN_FILES += demotion_gate
/^TEST_GEN_FILES = compaction_test$/a\
TEST_GEN_FILES += demotion_gate
