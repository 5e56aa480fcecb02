# unless: ^F:\tmm/memory-tiers\.c$
/^F:	mm\/demotion_gate\.c$/a\
F:	tools/testing/selftests/mm/demotion_gate.c
