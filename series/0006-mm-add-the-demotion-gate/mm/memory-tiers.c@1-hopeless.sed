# where: \bkswapd_clear_hopeless\(
/^bool\b.*\bnuma_demotion_enabled\b/,/^#ifdef CONFIG_SYSFS$/{
/^#ifdef CONFIG_SYSFS$/i\
@include series/retry-kswapd\
	for_each_online_pgdat(pgdat)\
		kswapd_clear_hopeless(pgdat, KSWAPD_CLEAR_HOPELESS_OTHER);\
}\

}
