# where: ^obj-\$\(CONFIG_MIGRATION\) \+= migrate\.o$
/^obj-$(CONFIG_MIGRATION) += migrate\.o$/a\
obj-$(CONFIG_DEMOTION_GATE) += demotion_gate.o
