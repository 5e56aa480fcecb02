# where: \bset_migration_target_nodes\(
# gone: \bset_migration_target_nodes\b
/^extern void set_migration_target_nodes(void);$/d
/^static inline void set_migration_target_nodes(void) {}$/d
