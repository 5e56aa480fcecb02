# where: ^static .*\bnode_demotion\b
# unless: \bkswapd_(failures|clear_hopeless)\b
/^bool numa_demotion_enabled = false;$/,/^#ifdef CONFIG_SYSFS$/{
/^#ifdef CONFIG_SYSFS$/i\
/**\
 * demotion_retry_kswapd() - Have kswapd try again if demotion is enabled\
 *\
 * A kswapd that could free nothing gives up on its node. That may be different\
 * now that there is somewhere to demote to.\
 *\
 * Context: Any. kswapd counts without a lock: one that fails at this moment may\
 *	    undo it for its node, until something else has it tried again.\
 */\
void demotion_retry_kswapd(void)\
{\
	struct pglist_data *pgdat;\
\
	if (!numa_demotion_enabled)\
		return;\
	for_each_online_pgdat(pgdat)\
		WRITE_ONCE(pgdat->kswapd_failures, 0);\
}\

}
