# where: ^CATEGORY=
# where: ^if \$RUN_DESTRUCTIVE; then$
# It takes whole nodes offline. Elsewhere it is run by hand.
/^- mlock$/i\
- demotion_gate\
	tests for the gate of the demotion targets (destructive)
/^CATEGORY="compaction" run_test \.\/compaction_test$/a\
\
if $RUN_DESTRUCTIVE; then\
CATEGORY="demotion_gate" run_test ./demotion_gate\
fi
