# where: mm/memory-tiers.c: ^\w.*\bnode_demotion\b
# where: ^config NUMA_MIGRATION$
# Migration between nodes has an option of its own.
/^config ARCH_ENABLE_HUGEPAGE_MIGRATION$/i\
# The demotion targets, and what keeps them current\
config DEMOTION_GATE\
	def_bool y\
	depends on NUMA_MIGRATION\

