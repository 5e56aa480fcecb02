// SPDX-License-Identifier: GPL-2.0
#include <linux/node.h>
#include <linux/cpu.h>

static const struct attribute_group node_dev_group = {
	.attrs = node_dev_attrs,
};

static const struct attribute_group *node_dev_groups[] = {
	&node_dev_group,
	NULL
};
