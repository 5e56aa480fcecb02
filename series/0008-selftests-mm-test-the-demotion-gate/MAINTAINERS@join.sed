# where: ^F:\tmm/memory-tiers\.c$
# unless: ^MEMORY MANAGEMENT - MISC\n(?:.+\n)*F:\tmm/memory-tiers\.c$
/^F:	mm\/memory-tiers\.c$/,/^$/{
/^F:	mm\/mempolicy\.c$/a\
F:	tools/testing/selftests/mm/demotion_gate.c
}
