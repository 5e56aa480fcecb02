# where: ^MEMORY MANAGEMENT - MISC\n(?:.+\n)*F:\tmm/memory-tiers\.c$
# The page is in a folder that it lists.
/^MEMORY MANAGEMENT - MISC$/,/^$/{
/^F:	Documentation\/admin-guide\/mm\/$/i\
F:	Documentation/ABI/testing/sysfs-kernel-mm-numa-demotion-gate
/^F:	include\/linux\/cma\.h$/a\
F:	include/linux/demotion_gate.h
/^F:	mm\/cma_sysfs\.c$/a\
F:	mm/demotion_gate.c
}
