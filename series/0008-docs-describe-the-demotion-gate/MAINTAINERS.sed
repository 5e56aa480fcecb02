/^F:	drivers\/base\/node_demotion\.c$/i\
F:	Documentation/ABI/testing/sysfs-devices-node-demotion-targets\
F:	Documentation/ABI/testing/sysfs-kernel-mm-numa-demotion-gate\
F:	Documentation/admin-guide/mm/demotion_gate.rst
