/^late_initcall_sync(demotion_gate_init);$/a\
\
#ifdef CONFIG_DEMOTION_GATE_KUNIT_TEST\
#include "tests/demotion_gate_kunit.c"\
#endif
