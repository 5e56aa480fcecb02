# where: ^MEMORY MANAGEMENT - MISC\n(?:.+\n)*F:\tmm/memory-tiers\.c$
/^F:	Documentation\/ABI\/testing\/sysfs-kernel-mm-numa-demotion-gate$/i\
F:	Documentation/ABI/testing/sysfs-devices-node-demotion-targets
