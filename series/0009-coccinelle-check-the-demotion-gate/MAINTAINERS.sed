/^F:	mm\/tests\/demotion_gate_kunit\.c$/a\
F:	scripts/coccinelle/misc/demotion_gate.cocci
