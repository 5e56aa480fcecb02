/^obj-$(CONFIG_NUMA)	+= node\.o$/a\
obj-$(CONFIG_DEMOTION_GATE)	+= node_demotion.o
