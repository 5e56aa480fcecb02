// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/devices/system/node/nodeN/demotion_targets
 */
#include <linux/demotion_gate.h>
#include <linux/device.h>
#include <linux/sysfs.h>

/*
 * Takes no hotplug lock: the file is removed with mem_hotplug_lock held, and
 * the removal waits for readers.
 */
static ssize_t demotion_targets_show(struct device *dev,
				     struct device_attribute *attr, char *buf)
{
	nodemask_t targets;

	demotion_targets_get(dev->id, &targets);
	return sysfs_emit(buf, "%*pbl\n", nodemask_pr_args(&targets));
}
static DEVICE_ATTR_RO(demotion_targets);

static struct attribute *node_demotion_attrs[] = {
	&dev_attr_demotion_targets.attr,
	NULL
};

const struct attribute_group node_demotion_attr_group = {
	.attrs = node_demotion_attrs,
};
