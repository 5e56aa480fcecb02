0,/^	\(dem[p-z]\|de[n-z]\|d[f-z]\)[a-z_.]*=/{
//i\
	demotion_gate=	[KNL,NUMA] What opens the demotion gate, which decides\
			whether reclaim has nodes to demote pages to.\
			Format: { auto | always | never }\
			auto:   more than one node with memory (default)\
			always: open, and every memory or CPU hotplug event has\
			        the targets built again, to measure the cost\
			never:  closed, nothing is demoted\
			See Documentation/admin-guide/mm/demotion_gate.rst.\

}
