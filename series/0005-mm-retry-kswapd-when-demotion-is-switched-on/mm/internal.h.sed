# unless: mm/memory-tiers.c: \bkswapd_(failures|clear_hopeless)\b
# unless: \bdemotion_retry_kswapd\(
/^extern int find_next_best_node(/a\
void demotion_retry_kswapd(void);
