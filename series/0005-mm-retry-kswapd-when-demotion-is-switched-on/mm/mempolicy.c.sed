# where: mm/migrate.c: ^static .*\bnode_demotion\b
# where: ^bool numa_demotion_enabled\b
/^bool numa_demotion_enabled = false;$/,/^#ifdef CONFIG_SYSFS$/{
/^#ifdef CONFIG_SYSFS$/i\
@include series/retry-kswapd\
	/* kswapd counts without a lock: one that fails right now may undo it. */\
	for_each_online_pgdat(pgdat)\
		WRITE_ONCE(pgdat->kswapd_failures, 0);\
}\

}
