# where: mm/migrate.c: ^\w.*\bnode_demotion\b
# where: mm/migrate.c: ^static int migration_online_cpu\(
# All that builds targets depends on HOTPLUG_CPU here.
/^config ARCH_ENABLE_HUGEPAGE_MIGRATION$/i\
# The demotion targets, and what keeps them current\
config DEMOTION_GATE\
	def_bool y\
	depends on NUMA && MIGRATION && HOTPLUG_CPU\

