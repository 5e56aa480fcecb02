# unless: CPUHP_MM_DEMOTION_DEAD
/^	CPUHP_MM_VMSTAT_DEAD,$/i\
	/* Before it, so torn down after it has updated node_states[N_CPU] */\
	CPUHP_MM_DEMOTION_DEAD,
/^	CPUHP_AP_ONLINE_DYN_END\>/a\
	/* Must be after CPUHP_AP_ONLINE_DYN for node_states[N_CPU] update */\
	CPUHP_AP_MM_DEMOTION_ONLINE,
