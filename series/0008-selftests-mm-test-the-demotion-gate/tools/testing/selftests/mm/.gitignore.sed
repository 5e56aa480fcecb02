# where: ^compaction_test$
/^compaction_test$/a\
demotion_gate
