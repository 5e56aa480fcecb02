# where: ^\w.*\bnode_demotion\b
# where: \bmemtier_refresh_toptier\(
/^#else$/{
N
/\nstatic inline void disable_all_demotion_targets(void) {}$/N
/\nstatic inline void establish_demotion_targets(void) {}$/d
P
D
}
