# where: ^static .*\bnode_demotion\b
# gone: CONFIG_HOTPLUG_CPU
# gone: set_migration_target_nodes\(
# gone: get_online_mems\(\) already
# gone: \* React to hotplug
/^#if defined(CONFIG_HOTPLUG_CPU)$/c\
#ifdef CONFIG_DEMOTION_GATE
s,^#endif /\* CONFIG_HOTPLUG_CPU \*/$,#endif /* CONFIG_DEMOTION_GATE */,
/^ \* being single-threaded\.$/c\
 * being single-threaded. Writers of the gate's policy hold get_online_mems()\
 * against these, and demotion_gate_lock against each other.
/^ \* These .* get_online_mems()\./,/^ \* set_migration_target_nodes()\.$/c\
 * The targets themselves are built by the gate's notifier, which runs after\
 * this one.
