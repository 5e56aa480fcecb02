# where: ^\w.*\bnode_demotion\b
# gone: set_migration_target_nodes\(
# gone: get_online_mems\(\) already
# gone: Recalculate the target
# gone: targets\.  .*them\.
/^ \* being single-threaded\.$/c\
 * being single-threaded, and by the locks of demotion_gate.c.
/^ \* These callbacks already hold get_online_mems()\./,/^ \* set_migration_target_nodes()\.$/c\
 * The targets are built by the gate, if it is open.
/^		 \* Recalculate the target nodes once the node$/,/^		 \* reaches its final state/c\
		 * The node has reached its final state (online or\
		 * offline), which may open or close the gate.
/^		 \* MEM_GOING_OFFLINE disabled all the migration$/,/^		 \* targets\.  .*them\.$/c\
		 * MEM_GOING_OFFLINE disabled all the targets,\
		 * if the gate was open.
