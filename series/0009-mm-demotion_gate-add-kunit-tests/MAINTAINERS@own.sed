# unless: ^F:\tmm/memory-tiers\.c$
/^F:	mm\/demotion_gate\.c$/a\
F:	mm/tests/.kunitconfig\
F:	mm/tests/demotion_gate_kunit.c
