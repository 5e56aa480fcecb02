# where: ^MEMORY MANAGEMENT - MISC\n(?:.+\n)*F:\tmm/memory-tiers\.c$
/^MEMORY MANAGEMENT - MISC$/,/^$/{
/^F:	mm\/process_vm_access\.c$/a\
F:	mm/tests/.kunitconfig\
F:	mm/tests/demotion_gate_kunit.c
}
