/^compaction_test$/a\
demotion_gate
