# where: ^static .*\bnode_demotion\b
/^static inline void establish_demotion_targets(void) {}$/c\
static inline void refresh_top_tier(void) {}
