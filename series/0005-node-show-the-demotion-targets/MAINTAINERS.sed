/^F:	include\/linux\/demotion_gate\.h$/i\
F:	drivers/base/node_demotion.c
