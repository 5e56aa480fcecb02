# where: ^F:\tmm/memory-tiers\.c$
/^F:	Documentation\/ABI\/testing\/sysfs-kernel-mm-memory-tiers$/i\
F:	Documentation/ABI/testing/sysfs-devices-node-demotion-targets
/^F:	include\/linux\/demotion_gate\.h$/i\
F:	drivers/base/node_demotion.c
