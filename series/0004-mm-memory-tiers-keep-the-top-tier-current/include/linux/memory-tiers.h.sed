# where: mm/memory-tiers.c: ^\w.*\bnode_demotion\b
# unless: \bmemtier_refresh_toptier\(
/^bool node_is_toptier(int node);$/a\
void memtier_refresh_toptier(void);
/^static inline bool node_is_toptier(int node)$/i\
static inline void memtier_refresh_toptier(void)\
{\
}\

