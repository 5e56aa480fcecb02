# where: ^MEMORY MANAGEMENT - MISC\n(?:.+\n)*F:\tmm/memory-tiers\.c$
/^MEMORY MANAGEMENT - MISC$/,/^$/{
/^F:	tools\/testing\/selftests\/mm\/$/a\
F:	tools/testing/selftests/mm/demotion_gate.c
}
