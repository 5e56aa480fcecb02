/^config ARCH_ENABLE_HUGEPAGE_MIGRATION$/i\
config DEMOTION_GATE_KUNIT_TEST\
	bool "KUnit tests for the demotion gate" if !KUNIT_ALL_TESTS\
	depends on DEMOTION_GATE && KUNIT=y\
	default KUNIT_ALL_TESTS\
	help\
	  Test the two decisions of the demotion gate: whether it is open,\
	  and whether a CPU event has the targets built again. The tests are\
	  built into the kernel, run while it boots, and change nothing.\
\
	  For more information on KUnit and unit tests in general, refer to\
	  Documentation/dev-tools/kunit/.\
\
	  If unsure, say N.\

