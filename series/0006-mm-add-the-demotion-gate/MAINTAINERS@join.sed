# where: ^F:\tmm/memory-tiers\.c$
# unless: ^MEMORY MANAGEMENT - MISC\n(?:.+\n)*F:\tmm/memory-tiers\.c$
# Beside the file that keeps the targets.
/^F:	include\/linux\/memory-tiers\.h$/i\
F:	Documentation/ABI/testing/sysfs-kernel-mm-numa-demotion-gate\
F:	Documentation/admin-guide/mm/demotion_gate.rst\
F:	include/linux/demotion_gate.h
/^F:	mm\/memory-tiers\.c$/i\
F:	mm/demotion_gate.c
