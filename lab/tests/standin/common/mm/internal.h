/* SPDX-License-Identifier: GPL-2.0 */
#ifdef CONFIG_NUMA
extern int find_next_best_node(int node, nodemask_t *used_node_mask);
#endif
