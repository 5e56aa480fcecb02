# unless: ^CATEGORY=
# where: ^run_test \./compaction_test$
/^run_test \.\/compaction_test$/a\
\
run_test ./demotion_gate
