# where: ^CATEGORY=
/^- mlock$/i\
- demotion_gate\
	tests for the gate of the demotion targets
/^CATEGORY="compaction" run_test \.\/compaction_test$/a\
\
CATEGORY="demotion_gate" run_test ./demotion_gate
