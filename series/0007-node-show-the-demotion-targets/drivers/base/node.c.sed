/^#include <linux\/node\.h>$/a\
#include <linux/demotion_gate.h>

/^static struct attribute \*node_dev_attrs\[\] = {$/i\
#ifdef CONFIG_DEMOTION_GATE\
static ssize_t demotion_targets_show(struct device *dev,\
				     struct device_attribute *attr, char *buf)\
{\
	nodemask_t targets;\
\
	/* No hotplug lock: the file is removed with it, and waits for us. */\
	demotion_targets_get(dev->id, &targets);\
	return sysfs_emit(buf, "%*pbl\\n", nodemask_pr_args(&targets));\
}\
static DEVICE_ATTR_RO(demotion_targets);\
#endif\

/^	&dev_attr_vmstat\.attr,$/a\
#ifdef CONFIG_DEMOTION_GATE\
	&dev_attr_demotion_targets.attr,\
#endif
