// SPDX-License-Identifier: GPL-2.0
#include <linux/mempolicy.h>
#include <linux/mm.h>

static int __init numa_init_sysfs(void)
{
	struct kobject *numa_kobj;

	numa_kobj = kobject_create_and_add("numa", mm_kobj);
	if (!numa_kobj)
		return -ENOMEM;
	return 0;
}
subsys_initcall(numa_init_sysfs);
