@header@
@@
 #include <linux/node.h>
+#include <linux/demotion_gate.h>

@group@
@@
 const struct attribute_group *node_dev_groups[] = {
 &node_dev_group,
+#ifdef CONFIG_DEMOTION_GATE
+	&node_demotion_attr_group,
+#endif
 ...
 };
