# where: ^\w.*\bnode_demotion\b
/^#else$/{
N
/\nstatic inline void disable_all_demotion_targets(void) {}$/N
/\nstatic inline void establish_demotion_targets(void) {}$/d
P
D
}
