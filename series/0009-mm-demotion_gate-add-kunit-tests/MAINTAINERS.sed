/^F:	mm\/demotion_gate\.c$/a\
F:	mm/tests/.kunitconfig\
F:	mm/tests/demotion_gate_kunit.c
