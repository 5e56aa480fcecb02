/^TEST_GEN_\(FILES\|PROGS\) +\?= compaction_test$/a\
TEST_GEN_FILES += demotion_gate
