# where: ^F:\tmm/memory-tiers\.c$
# unless: ^MEMORY MANAGEMENT - MISC\n(?:.+\n)*F:\tmm/memory-tiers\.c$
/^F:	Documentation\/ABI\/testing\/sysfs-kernel-mm-memory-tiers$/i\
F:	Documentation/ABI/testing/sysfs-devices-node-demotion-targets
