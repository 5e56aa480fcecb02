/^config ARCH_ENABLE_HUGEPAGE_MIGRATION$/i\
config DEMOTION_GATE_KUNIT_TEST\
	bool "KUnit tests for the demotion gate" if !KUNIT_ALL_TESTS\
	depends on DEMOTION_GATE && KUNIT=y && SYSFS\
	default KUNIT_ALL_TESTS\
	help\
	  Test the decision what an event does to the demotion targets, and\
	  the sequences of policies and events that could lose a due build.\
	  They are built into the kernel and run while it boots.\
\
	  For more information on KUnit and unit tests in general, refer to\
	  Documentation/dev-tools/kunit/.\
\
	  If unsure, say N.\

