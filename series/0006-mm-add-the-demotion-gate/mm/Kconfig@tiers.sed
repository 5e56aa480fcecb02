# where: mm/memory-tiers.c: ^static .*\bnode_demotion\b
# unless: ^config NUMA_MIGRATION$
# The targets are built with memory tiers.
/^config ARCH_ENABLE_HUGEPAGE_MIGRATION$/i\
# The demotion targets, and what keeps them current\
config DEMOTION_GATE\
	def_bool y\
	depends on NUMA && MIGRATION\

