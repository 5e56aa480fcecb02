# unless: mm/migrate.c: ^static int migration_online_cpu\(
# unless: ^config NUMA_MIGRATION$
# The targets are built at boot and for memory, whatever becomes of CPUs.
/^config ARCH_ENABLE_HUGEPAGE_MIGRATION$/i\
# The demotion targets, and what keeps them current\
config DEMOTION_GATE\
	def_bool y\
	depends on NUMA && MIGRATION\

