# where: ^static .*\bnode_demotion\b
# unless: \bkswapd_(failures|clear_hopeless)\b
/^bool numa_demotion_enabled = false;$/,/^#ifdef CONFIG_SYSFS$/{
/^#ifdef CONFIG_SYSFS$/i\
@include series/retry-kswapd\
	/* kswapd counts without a lock: one that fails right now may undo it. */\
	for_each_online_pgdat(pgdat)\
		WRITE_ONCE(pgdat->kswapd_failures, 0);\
}\

}
