# where: ^\w.*\bnode_demotion\b
# unless: \bkswapd_(failures|clear_hopeless)\b
# unless: ^void demotion_retry_kswapd\(
/^bool\b.*\bnuma_demotion_enabled\b/,/^#ifdef CONFIG_SYSFS$/{
/^#ifdef CONFIG_SYSFS$/i\
@include series/retry-kswapd\
@include series/retry-kswapd-count\
}\

}
