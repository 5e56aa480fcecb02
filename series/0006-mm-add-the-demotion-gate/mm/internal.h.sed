# unless: \bdemotion_retry_kswapd\(
/^extern int find_next_best_node(/a\
void demotion_retry_kswapd(void);
