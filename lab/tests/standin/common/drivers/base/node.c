// SPDX-License-Identifier: GPL-2.0
#include <linux/node.h>
#include <linux/cpu.h>

static struct attribute *node_dev_attrs[] = {
	&dev_attr_vmstat.attr,
	NULL
};
