# where: ^F:\tmm/memory-tiers\.c$
# unless: ^MEMORY MANAGEMENT - MISC\n(?:.+\n)*F:\tmm/memory-tiers\.c$
/^F:	mm\/memory-tiers\.c$/,/^$/{
/^F:	mm\/mempolicy\.c$/a\
F:	mm/tests/.kunitconfig\
F:	mm/tests/demotion_gate_kunit.c
}
