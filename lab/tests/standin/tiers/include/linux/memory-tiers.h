/* SPDX-License-Identifier: GPL-2.0 */
#ifdef CONFIG_NUMA
extern bool numa_demotion_enabled;
#ifdef CONFIG_MIGRATION
bool node_is_toptier(int node);
#else
static inline bool node_is_toptier(int node)
{
	return true;
}
#endif
#else
static inline bool node_is_toptier(int node)
{
	return true;
}
#endif
