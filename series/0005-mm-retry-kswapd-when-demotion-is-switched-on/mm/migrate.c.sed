# where: ^\w.*\bnode_demotion\b
# where: ^bool numa_demotion_enabled\b
# unless: ^void demotion_retry_kswapd\(
/^bool numa_demotion_enabled = false;$/,/^#ifdef CONFIG_SYSFS$/{
/^#ifdef CONFIG_SYSFS$/i\
@include series/retry-kswapd\
@include series/retry-kswapd-count\
}\

}
