# where: ^\w.*\bnode_demotion\b
# where: ^#if defined\(CONFIG_HOTPLUG_CPU\)$
# gone: CONFIG_HOTPLUG_CPU
/^#if defined(CONFIG_HOTPLUG_CPU)$/c\
#ifdef CONFIG_DEMOTION_GATE
s,^#endif /\* CONFIG_HOTPLUG_CPU \*/$,#endif /* CONFIG_DEMOTION_GATE */,
/^	ret = cpuhp_setup_state(CPUHP_AP_MM_DEMOTION_ONLINE,/,/;$/c\
	ret = cpuhp_setup_state_nocalls(CPUHP_AP_MM_DEMOTION_ONLINE,\
					"mm/demotion:online",\
					migration_online_cpu, NULL);
