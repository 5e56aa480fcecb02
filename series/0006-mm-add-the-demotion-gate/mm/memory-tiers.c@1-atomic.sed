# where: \batomic_set\(&pgdat->kswapd_failures
/^bool\b.*\bnuma_demotion_enabled\b/,/^#ifdef CONFIG_SYSFS$/{
/^#ifdef CONFIG_SYSFS$/i\
@include series/retry-kswapd\
	for_each_online_pgdat(pgdat)\
		atomic_set(&pgdat->kswapd_failures, 0);\
}\

}
