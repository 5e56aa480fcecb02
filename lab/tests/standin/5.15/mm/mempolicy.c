// SPDX-License-Identifier: GPL-2.0
#include <linux/mempolicy.h>
#include <linux/mm.h>

bool numa_demotion_enabled = false;

#ifdef CONFIG_SYSFS
static ssize_t numa_demotion_enabled_store(struct kobject *kobj,
					   const char *buf, size_t count)
{
	if (!strncmp(buf, "1", 1))
		numa_demotion_enabled = true;
	else
		return -EINVAL;

	return count;
}

static int __init numa_init_sysfs(void)
{
	struct kobject *numa_kobj;

	numa_kobj = kobject_create_and_add("numa", mm_kobj);
	if (!numa_kobj)
		return -ENOMEM;
	return 0;
}
subsys_initcall(numa_init_sysfs);
#endif
