# where: ^MEMORY MANAGEMENT - MISC\n(?:.+\n)*F:\tmm/memory-tiers\.c$
# The first of the section's files, whatever else is there.
/^MEMORY MANAGEMENT - MISC$/,/^F:/{
/^F:/i\
F:	Documentation/ABI/testing/sysfs-devices-node-demotion-targets
}
