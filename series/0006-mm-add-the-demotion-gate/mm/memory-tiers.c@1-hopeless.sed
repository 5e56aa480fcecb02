# where: \bkswapd_clear_hopeless\(
/^bool numa_demotion_enabled = false;$/,/^#ifdef CONFIG_SYSFS$/{
/^#ifdef CONFIG_SYSFS$/i\
/**\
 * demotion_retry_kswapd() - Have kswapd try again if demotion is enabled\
 *\
 * A kswapd that could free nothing gives up on its node. That may be different\
 * now that there is somewhere to demote to.\
 *\
 * Context: Any.\
 */\
void demotion_retry_kswapd(void)\
{\
	struct pglist_data *pgdat;\
\
	if (!numa_demotion_enabled)\
		return;\
	for_each_online_pgdat(pgdat)\
		kswapd_clear_hopeless(pgdat, KSWAPD_CLEAR_HOPELESS_OTHER);\
}\

}
