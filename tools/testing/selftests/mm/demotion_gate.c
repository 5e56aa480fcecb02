// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the demotion gate, /sys/kernel/mm/numa/demotion_gate
 *
 * They take CPUs and memory blocks offline and online again, also all of a
 * node, and fill a node. Each case runs in a child. The parent puts back what
 * the child has changed, whatever ended it, also when it is killed itself by
 * anything but SIGKILL.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../kselftest.h"

#define NUMA		"/sys/kernel/mm/numa/"
#define POLICY		NUMA "demotion_gate/policy"
#define GATE_OPEN	NUMA "demotion_gate/open"
#define DEMOTION	NUMA "demotion_enabled"
#define DEBUGFS		"/sys/kernel/debug"
#define REBUILDS	DEBUGFS "/demotion_gate/rebuilds"
#define INJECT		DEBUGFS "/notifier-error-inject/memory/actions/MEM_GOING_OFFLINE/error"
#define NODES		"/sys/devices/system/node/"
#define CPU_FILE	"/sys/devices/system/cpu/cpu%d/online"
#define BLOCK		"/sys/devices/system/memory/memory%d/"
#define TIERS		"/sys/devices/virtual/memory_tiering/"

#define MAX_ID		1024	/* of a node */
#define MAX_TIER	256
#define MAX_PARTS	65536
#define KIB		1024L
#define MIB		(1024 * KIB)

/*
 * A node with more CPUs or blocks is not taken away. All cases together do so
 * up to 20 times, and must fit into the time that runners allow.
 */
#define MAX_GROUP	128

enum { AUTO, ALWAYS, NEVER, NR_POLICIES };
static const char * const policies[] = { "auto", "always", "never" };
static const char * const shown[] = {
	"[auto] always never\n", "auto [always] never\n", "auto always [never]\n",
};

/* A CPU or a memory block that was online at the start. */
struct part {
	int id;
	bool is_cpu;
	bool movable;		/* a block in ZONE_MOVABLE */
	bool fixed;		/* can't go offline */
	bool away;		/* a case took it */
};

/* All CPUs, or all blocks, of a node. */
struct group {
	struct part *parts;
	int nr, nr_fixed, nr_movable;
};

/* What the children tell the parent, and each other. */
static struct {
	char why[256];			/* the case was skipped */
	struct part *found[2];		/* known to go and come back */
	struct part parts[MAX_PARTS];
} *shared;

/* Nodes go by their place in ids[], so that 64 bits are enough for a set. */
static int ids[64], nr_nodes, nr_parts;
static struct group groups[2 * 64];
static char saved_policy[16], saved_demotion[16], saved_inject[16];
static bool mounted;

/* Of the case: its row of the policy table, and what it takes away. */
static int policy;
static struct part *part;
static struct group *group;

/* For use in a child. */
#define fail(...)							\
	do {								\
		ksft_print_msg(__VA_ARGS__);				\
		exit(KSFT_FAIL);					\
	} while (0)

#define skip(...)							\
	do {								\
		snprintf(shared->why, sizeof(shared->why), __VA_ARGS__);	\
		exit(KSFT_SKIP);					\
	} while (0)

/* Files */

static const char *name(const char *format, ...)
{
	static char path[256];
	va_list args;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	return path;
}

static int put_bytes(const char *path, const char *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	/* One write: the kernel takes each for a value of its own. */
	ret = write(fd, bytes, len);
	if (ret < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static int put(const char *path, const char *text)
{
	int ret = put_bytes(path, text, strlen(text));

	return ret < 0 ? ret : 0;
}

/* "" if it can't be read; good until the next call. */
static char *get(const char *path)
{
	static char text[1024 * 1024];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t ret, len = 0;

	if (fd >= 0) {
		while ((ret = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
			len += ret;
		close(fd);
	}
	text[len] = '\0';
	return text;
}

/* The number behind @key in @text, or -1. */
static long number_after(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

static long count_rebuilds(void)
{
	return strtol(get(REBUILDS), NULL, 10);
}

/* The nodes in a file: "0-2,5\n" */
static uint64_t get_nodes(const char *path)
{
	char *at = get(path);
	uint64_t nodes = 0;
	long from, to;
	int i;

	while (*at >= '0' && *at <= '9') {
		from = strtol(at, &at, 10);
		to = *at == '-' ? strtol(at + 1, &at, 10) : from;
		at += *at == ',';
		for (i = 0; i < nr_nodes; i++)
			if (ids[i] >= from && ids[i] <= to)
				nodes |= 1ULL << i;
	}
	return nodes;
}

static uint64_t memory_nodes(void)
{
	return get_nodes(NODES "has_memory");
}

static int count(uint64_t nodes)
{
	return __builtin_popcountll(nodes);
}

/* CPUs and memory blocks */

static const char *part_file(const struct part *part)
{
	return name(part->is_cpu ? CPU_FILE : BLOCK "state", part->id);
}

static bool part_is_online(const struct part *part)
{
	return !strcmp(get(part_file(part)), part->is_cpu ? "1\n" : "online\n");
}

static int switch_part(struct part *part, bool on)
{
	const char *word;

	if (part->is_cpu)
		word = on ? "1" : "0";
	else if (!on)
		word = "offline";
	else	/* plain "online" may choose another zone than it was in */
		word = part->movable ? "online_movable" : "online_kernel";
	part->away = true;
	return put(part_file(part), word);
}

static bool restore_part(struct part *part)
{
	int tries;

	/* CPU hotplug may be busy for a moment. */
	for (tries = 0; part->away && tries < 50; tries++) {
		if (part_is_online(part) || !switch_part(part, true))
			part->away = false;
		else
			usleep(100000);
	}
	return !part->away;
}

/* The kernel's own memory is mostly in low blocks: those are tried last. */
static int compare_parts(const void *left, const void *right)
{
	const struct part *one = left, *two = right;

	return two->id - one->id;
}

static void find_parts(struct group *group, int node, bool is_cpu)
{
	DIR *dir = opendir(name(NODES "node%d", ids[node]));
	struct dirent *entry;
	const char *zone;

	group->parts = &shared->parts[nr_parts];
	while (dir && nr_parts < MAX_PARTS && (entry = readdir(dir))) {
		struct part part = { .is_cpu = is_cpu };

		if (sscanf(entry->d_name, is_cpu ? "cpu%d" : "memory%d",
			   &part.id) != 1)
			continue;
		if (is_cpu) {
			/* One that can't go has no such file. */
			part.fixed = access(part_file(&part), W_OK);
		} else {
			zone = get(name(BLOCK "valid_zones", part.id));
			part.movable = !strcmp(zone, "Movable\n");
			part.fixed = !*zone || !strcmp(zone, "none\n");
		}
		if (!part.fixed && !part_is_online(&part))
			continue;
		group->nr++;
		group->nr_fixed += part.fixed;
		group->nr_movable += part.movable;
		shared->parts[nr_parts++] = part;
	}
	qsort(group->parts, group->nr, sizeof(*group->parts), compare_parts);
	if (dir)
		closedir(dir);
}

/* What a case needs */

enum {
	COUNTER		= 1 << 0,
	A_CPU		= 1 << 1,	/* one whose node keeps another */
	A_BLOCK		= 1 << 2,	/* likewise */
	TWO_NODES	= 1 << 3,	/* with memory */
	NODE_CPUS	= 1 << 4,	/* all of a node, but not of all nodes */
	NODE_BLOCKS	= 1 << 5,	/* likewise */
	INJECTION	= 1 << 6,
};

/* In kB. */
static long node_memory(int node, const char *key)
{
	return number_after(get(name(NODES "node%d/meminfo", ids[node])), key);
}

static long all_memory(const char *key)
{
	return number_after(get("/proc/meminfo"), key);
}

static struct part *find_part(bool is_cpu)
{
	int i, j, tries = 64;

	for (i = is_cpu; i < 2 * nr_nodes; i += 2) {
		for (j = 0; j < groups[i].nr && groups[i].nr > 1; j++) {
			struct part *part = &groups[i].parts[j];

			/* Nothing but trying tells whether a block can go. */
			if (!shared->found[is_cpu] && !part->fixed &&
			    tries-- > 0 && !switch_part(part, false) &&
			    restore_part(part))
				shared->found[is_cpu] = part;
		}
	}
	return shared->found[is_cpu];
}

/* The smallest one that can go. What is in use there must find room. */
static struct group *find_group(bool is_cpu)
{
	struct group *best = NULL;
	int i, others = -1;
	long room;

	for (i = is_cpu; i < 2 * nr_nodes; i += 2) {
		struct group *group = &groups[i];

		others += !!group->nr;
		room = all_memory("MemFree:") - node_memory(i / 2, "MemFree:");
		if (group->nr && group->nr <= MAX_GROUP && !group->nr_fixed &&
		    (!best || group->nr < best->nr) &&
		    (is_cpu || (group->nr_movable == group->nr &&
				node_memory(i / 2, "MemUsed:") <= room / 2)))
			best = group;
	}
	return others > 0 ? best : NULL;
}

/* Why the case can't run here, or NULL. */
static const char *lacks(unsigned int needs)
{
	if ((needs & COUNTER) && access(REBUILDS, R_OK))
		return "needs " REBUILDS;
	if ((needs & TWO_NODES) && count(memory_nodes()) < 2)
		return "needs two nodes with memory";
	if ((needs & INJECTION) && access(INJECT, W_OK))
		return "needs " INJECT;
	if (needs & (A_CPU | A_BLOCK)) {
		part = find_part(needs & A_CPU);
		if (!part)
			return "needs a CPU or block that can go, in a node that keeps another";
	}
	if (needs & (NODE_CPUS | NODE_BLOCKS)) {
		group = find_group(needs & NODE_CPUS);
		if (!group)
			return "needs another node, and at most 128 CPUs or blocks that can all go";
	}
	return NULL;
}

/* The targets that there should be */

static const char *targets_file(int node)
{
	return name(NODES "node%d/demotion_targets", ids[node]);
}

/* "0:1\n1:\n": one string to compare and to show. */
static char *all_targets(void)
{
	char text[64 * 80] = "";
	int node, len = 0;

	for (node = 0; node < nr_nodes && len < (int)sizeof(text); node++)
		len += snprintf(text + len, sizeof(text) - len, "%d:%s",
				ids[node], get(targets_file(node)));
	return strdup(text);
}

static void expect_targets(const char *expected)
{
	if (strcmp(all_targets(), expected))
		fail("targets:\n%s# expected:\n%s", all_targets(), expected);
}

static int distance_of(int from, int to)
{
	char *at = get(name(NODES "node%d/distance", ids[from]));

	while (to--)
		strtol(at, &at, 10);
	return strtol(at, NULL, 10);
}

/*
 * The node out of @from that the kernel takes for @node. Of equals it takes
 * one that it used less so far, by a count that nobody can see: believe in
 * what it @shows.
 */
static int best_target(int node, uint64_t from, uint64_t shows)
{
	uint64_t cpus = get_nodes(NODES "has_cpu");
	int n, val, best = -1, min = INT_MAX;

	for (n = 0; n < nr_nodes; n++) {
		if (!(from >> n & 1))
			continue;
		val = distance_of(node, n) + (n < node) + (cpus >> n & 1);
		if (val < min || (val == min && (shows >> n & 1) &&
				  !(shows >> best & 1))) {
			min = val;
			best = n;
		}
	}
	return best;
}

/* All that are as far as the best, if the kernel has room for several. */
static uint64_t best_targets(int node, uint64_t from)
{
	uint64_t targets = 0, shows = get_nodes(targets_file(node));
	int best, first = -1;

	while ((best = best_target(node, from & ~targets, shows)) >= 0) {
		if (first < 0)
			first = best;
		else if (distance_of(node, best) != distance_of(node, first) ||
			 (access(TIERS, F_OK) && !(shows >> best & 1)))
			break;
		targets |= 1ULL << best;
	}
	return targets;
}

/* The nodes of the next tier: the higher the number, the slower the memory. */
static uint64_t lower_tier(int node)
{
	bool found = false;
	uint64_t nodes;
	int id;

	for (id = 0; id < MAX_TIER; id++) {
		nodes = get_nodes(name(TIERS "memory_tier%d/nodelist", id));
		if (nodes && found)
			return nodes;
		found |= nodes >> node & 1;
	}
	return 0;
}

/*
 * A model of what the kernel builds. With memory tiers, a node demotes to the
 * next one. Kernels without start from the nodes with CPUs, go on from the
 * targets of those, and never lead back.
 */
static void model_targets(uint64_t *targets)
{
	uint64_t from = memory_nodes(), next = get_nodes(NODES "has_cpu"), pass;
	int node;

	for (node = 0; node < nr_nodes && !access(TIERS, F_OK); node++)
		if (from >> node & 1)
			targets[node] = best_targets(node, lower_tier(node));
	if (!access(TIERS, F_OK))
		return;
	for (pass = next; pass; pass = next) {
		next = 0;
		from &= ~pass;
		for (node = 0; node < nr_nodes; node++) {
			if (!(pass >> node & 1))
				continue;
			targets[node] = best_targets(node, from);
			from &= ~targets[node];
			next |= targets[node];
		}
	}
	/* One without memory is not shown to have any. */
	for (node = 0; node < nr_nodes; node++)
		if (!(memory_nodes() >> node & 1))
			targets[node] = 0;
}

/* What the gate says and does */

static bool should_be_open(int policy)
{
	return policy == AUTO ? count(memory_nodes()) > 1 : policy == ALWAYS;
}

static void expect_state(int policy)
{
	bool open = should_be_open(policy);
	uint64_t targets[64] = {};
	int node;

	if (strcmp(get(POLICY), shown[policy]))
		fail("policy is %s, reads %s", policies[policy], get(POLICY));
	if (strcmp(get(GATE_OPEN), open ? "1\n" : "0\n"))
		fail("policy %s, open is %s", policies[policy], get(GATE_OPEN));
	if (open)
		model_targets(targets);
	for (node = 0; node < nr_nodes; node++)
		if (get_nodes(targets_file(node)) != targets[node] ||
		    (!targets[node] && strcmp(get(targets_file(node)), "\n")))
			fail("policy %s, not the targets of node %d:\n%s",
			     policies[policy], ids[node], all_targets());
}

static void set_policy(int policy)
{
	int ret = put(POLICY, policies[policy]);

	if (ret)
		fail("writing %s: %s\n", policies[policy], strerror(-ret));
}

static void expect_rebuilds(long before, long expected, const char *what)
{
	long found = count_rebuilds() - before;

	if (found != expected)
		fail("%s: %ld rebuilds, expected %ld\n", what, found, expected);
}

static void expect_set_policy(int policy, long rebuilds)
{
	long before = count_rebuilds();

	set_policy(policy);
	expect_rebuilds(before, rebuilds, policies[policy]);
	expect_state(policy);
}

/*
 * Offline is refused while pages are busy, and may or may not get as far as an
 * event of its own. So start over, with the counter as well.
 */
static int try_switch(struct part *part, bool on, long *before)
{
	int ret, tries = 0;

	do {
		*before = count_rebuilds();
		ret = switch_part(part, on);
	} while ((ret == -EBUSY || ret == -EAGAIN) && ++tries < 20 &&
		 !usleep(200000));
	return ret;
}

static void expect_event(struct part *part, bool on, long rebuilds)
{
	char what[64];
	long before;
	int ret;

	snprintf(what, sizeof(what), "%s %d %s", part->is_cpu ? "CPU" : "block",
		 part->id, on ? "online" : "offline");
	ret = try_switch(part, on, &before);
	if (ret)
		fail("%s: %s\n", what, strerror(-ret));
	expect_rebuilds(before, rebuilds, what);
}

/* Each of the group costs @each, the last to go and first to come @edge. */
static void expect_group(bool on, long each, long edge)
{
	int i, edge_at = on ? 0 : group->nr - 1;

	for (i = 0; i < group->nr; i++)
		expect_event(&group->parts[i], on, i == edge_at ? edge : each);
}

/* Cases that choose the policies themselves */

static void expect_mode(const char *path, mode_t mode)
{
	struct stat st;

	if (stat(path, &st) || (st.st_mode & 07777) != mode)
		fail("%s is not there, or its mode is not %o\n", path, mode);
}

static void test_modes(void)
{
	int node;

	expect_mode(POLICY, 0644);
	expect_mode(GATE_OPEN, 0444);
	for (node = 0; node < nr_nodes; node++)
		expect_mode(targets_file(node), 0444);
	/* Modes don't keep root from trying. */
	if (!put(GATE_OPEN, "1") || !put(GATE_OPEN, "0"))
		fail("open can be written\n");
}

#define TEXT(string)	{ .bytes = (string), .len = sizeof(string) - 1 }

static void test_bad_policy(void)
{
	static const struct {
		const char *bytes;
		size_t len;
	} bad[] = {
		TEXT("\n"), TEXT(" "), TEXT(" auto"), TEXT("auto "),
		TEXT("\nauto"), TEXT("AUTO"), TEXT("NEVER\n"), TEXT("aut"),
		TEXT("autox"), TEXT("auto\nnever"), TEXT("auto\n\n"),
		TEXT("auto never"), TEXT("alwaysnever"), TEXT("0"), TEXT("1"),
		TEXT("[auto]"), TEXT("[auto] always never\n"), TEXT("\0"),
		TEXT("auto\0never"), TEXT("auto\0"), TEXT("\0auto"),
		TEXT("auto\xff"), TEXT("always\x01"), TEXT("%s%n"),
	};
	static char text[5000];		/* more than sysfs takes at once */
	size_t i, j;
	long before;

	for (i = 0; i < NR_POLICIES; i++) {
		set_policy(i);
		before = count_rebuilds();
		for (j = 0; j < ARRAY_SIZE(bad); j++)
			if (put_bytes(POLICY, bad[j].bytes, bad[j].len) != -EINVAL)
				fail("bad policy %zu is not refused\n", j);
		for (j = 0; j < 3; j++) {
			memset(text, "a\n"[j], sizeof(text));
			memcpy(text, "auto", 4);
			if (put_bytes(POLICY, text, sizeof(text)) != -EINVAL)
				fail("long policy %zu is not refused\n", j);
		}
		/* sysfs answers this one itself. */
		if (put_bytes(POLICY, "", 0))
			fail("a write of nothing is an error\n");
		expect_rebuilds(before, 0, "bad policies");
		expect_state(i);
	}
}

/* All nine, with and without newline: only what opens the gate rebuilds. */
static void test_policy_writes(void)
{
	int from, to;

	for (from = 0; from < NR_POLICIES; from++) {
		for (to = 0; to < NR_POLICIES; to++) {
			if (put(POLICY, name("%s\n", policies[from])))
				fail("%s is refused\n", policies[from]);
			expect_state(from);
			expect_set_policy(to, !should_be_open(from) &&
					  should_be_open(to));
		}
	}
}

static void test_right_targets(void)
{
	set_policy(AUTO);
	expect_state(AUTO);
	set_policy(ALWAYS);
	expect_state(ALWAYS);
}

static void test_round_trips(void)
{
	static const int trips[][2] = {
		{ ALWAYS, AUTO }, { NEVER, AUTO }, { ALWAYS, NEVER },
		{ NEVER, ALWAYS }, { NEVER, NEVER },
	};
	char *expected;
	size_t i;

	set_policy(AUTO);
	expected = all_targets();
	for (i = 0; i < ARRAY_SIZE(trips); i++) {
		set_policy(trips[i][0]);
		set_policy(trips[i][1]);
		set_policy(AUTO);
		expect_targets(expected);
	}
}

/*
 * The gate must not believe that the targets fit because they did before it
 * was closed, or be surprised by what 'always' kept current.
 */
static void test_other_policy(void)
{
	int nodes = count(memory_nodes());
	bool two = nodes > 1, still_two = nodes - !group->parts->is_cpu > 1;
	int other;

	for (other = ALWAYS; other <= NEVER; other++) {
		bool always = other == ALWAYS;
		char *expected;

		set_policy(AUTO);
		expected = all_targets();

		/* Away under the other policy, back under auto ... */
		set_policy(other);
		expect_group(false, always, always);
		expect_set_policy(AUTO, still_two && !always);
		expect_group(true, 0, two);
		expect_targets(expected);

		/* ... and the other way round. */
		expect_group(false, 0, still_two);
		expect_set_policy(other, !still_two && always);
		expect_group(true, always, always);
		expect_set_policy(AUTO, two && !always);
		expect_targets(expected);
	}
}

static void test_cycles(void)
{
	long before, unused;
	int i, ret;

	set_policy(AUTO);
	before = count_rebuilds();
	for (i = 0; i < 200; i++) {
		ret = try_switch(part, i & 1, &unused);
		if (ret)
			fail("switch %d: %s\n", i, strerror(-ret));
	}
	expect_rebuilds(before, 0, "100 cycles");
}

/* Demotion */

static int full;		/* the node that is filled */
static char *memory;
static size_t size, used;

/* All of pgdemote_*, however many this kernel has; -1 if none. */
static long count_demoted(void)
{
	const char *at = get("/proc/vmstat");
	long found = -1;

	while ((at = strstr(at, "pgdemote_"))) {
		at = strchr(at, ' ');
		found = (found < 0 ? 0 : found) + strtol(at, NULL, 10);
	}
	return found;
}

static bool kswapd_gave_up(void)
{
	const char *at = strstr(get("/proc/zoneinfo"),
				name("Node %d,", ids[full]));

	return at && number_after(at, "node_unreclaimable:") == 1;
}

/*
 * Pages are preferred in the node, which wakes its kswapd and falls back to
 * other nodes: nobody runs out of memory, and nobody reclaims in the node
 * directly, which would have a kswapd that gave up try again.
 */
static void start_to_fill(void)
{
	static unsigned long mask[MAX_ID / (8 * sizeof(long))];
	uint64_t others = get_nodes(NODES "has_normal_memory");
	long room;
	int id;

	if (count_demoted() < 0 || !saved_demotion[0])
		skip("needs pgdemote_* in /proc/vmstat and " DEMOTION);
	if (all_memory("SwapFree:") > 0)
		skip("needs swap to be off, or kswapd would use it");
	set_policy(AUTO);
	while (full < nr_nodes && !get_nodes(targets_file(full)))
		full++;
	if (full == nr_nodes)
		skip("needs a node that has a demotion target");
	/* Else a full node is out of memory for all that can't be moved. */
	if (!(others & ~(1ULL << full)))
		skip("needs another node that is not all ZONE_MOVABLE");
	size = node_memory(full, "MemFree:") * KIB + 128 * MIB;
	room = all_memory("MemFree:") * KIB - size;
	id = ids[full];
	if (size > 8192 * MIB || room < 128 * MIB)
		skip("node %d has too much, or others too little, memory", id);

	mask[id / (8 * sizeof(long))] = 1UL << id % (8 * sizeof(long));
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED || syscall(SYS_mbind, memory, size,
					    MPOL_PREFERRED_MANY, mask, MAX_ID, 0))
		fail("memory for node %d: %s\n", id, strerror(errno));
	madvise(memory, size, MADV_NOHUGEPAGE);
	if (put(DEMOTION, "1"))
		fail("can't enable demotion\n");
}

static void fill(size_t bytes)
{
	if (bytes > size - used)
		bytes = size - used;
	memset(memory + used, 1, bytes);
	used += bytes;
	/* Leave kswapd its share of the CPU. */
	usleep(20000);
}

/* At most @bytes. Return: whether anything was demoted. */
static bool fill_until_demoted(size_t bytes)
{
	long before = count_demoted();
	size_t end = used + bytes;

	while (used < end && used < size && count_demoted() == before)
		fill(256 * KIB);
	return count_demoted() > before;
}

static void test_pages_are_demoted(void)
{
	long before;
	int i;

	start_to_fill();
	fill((size - 128 * MIB) / 10 * 9);
	if (!fill_until_demoted(size))
		fail("gate open, %zu MiB, nothing is demoted\n", used / MIB);

	set_policy(NEVER);
	/* What was isolated before may still be on its way. */
	for (i = 0; i < 10; i++) {
		before = count_demoted();
		sleep(3);
		if (count_demoted() == before)
			break;
	}
	if (fill_until_demoted(32 * MIB))
		fail("gate closed, pages are demoted\n");
}

/* A kswapd that gave up while there were no targets has to try again. */
static void test_demotion_comes_back(void)
{
	int i;

	start_to_fill();
	set_policy(NEVER);
	fill(size - 128 * MIB);
	/* It takes 16 failures. Each time that it is woken is one. */
	for (i = 0; i < 256 && !kswapd_gave_up(); i++)
		fill(128 * KIB);
	if (!kswapd_gave_up())
		skip("needs a kswapd that gives up, with memory to reclaim");
	set_policy(AUTO);
	if (!fill_until_demoted(64 * MIB))
		fail("gate open again, nothing is demoted\n");
}

/* The policy table, row by row */

static void test_files(void)
{
	expect_state(policy);
}

static void test_events(void)
{
	expect_event(part, false, policy == ALWAYS);
	expect_state(policy);
	expect_event(part, true, policy == ALWAYS);
	expect_state(policy);
}

/* A node's last CPU or memory goes, its first comes. */
static void test_node_events(void)
{
	bool always = policy == ALWAYS, open = should_be_open(policy);
	int nodes = count(memory_nodes()) - !group->parts->is_cpu;
	char *expected = all_targets();

	expect_group(false, always, always || (open && nodes > 1));
	if (count(memory_nodes()) != nodes)
		fail("%d nodes have memory\n", count(memory_nodes()));
	expect_state(policy);
	expect_group(true, always, open);
	expect_state(policy);
	expect_targets(expected);
}

/*
 * Kernels without memory tiers disable the targets before a node's last block
 * goes, and must enable them when it stays.
 */
static void test_cancelled(void)
{
	bool disabled = group && should_be_open(policy) && access(TIERS, F_OK);
	char *expected;
	long before;
	int i, ret;

	for (i = group ? group->nr : 0; --i > 0;)
		expect_event(&group->parts[i], false, policy == ALWAYS);
	if (group)
		part = group->parts;
	expected = all_targets();
	if (put(INJECT, name("%d", -ENOMEM)))
		fail("can't inject an error\n");
	ret = try_switch(part, false, &before);
	if (put(INJECT, "0") || ret != -ENOMEM)
		fail("offline with an error injected: %s\n", strerror(-ret));
	expect_rebuilds(before, policy == ALWAYS || disabled, "cancelled");
	expect_state(policy);
	expect_targets(expected);
}

static const struct test {
	const char *name;
	void (*run)(void);
	unsigned int needs;
} tests[] = {
	{ "demotion_gate.modes", test_modes },
	{ "demotion_gate.bad_policy_is_refused", test_bad_policy },
	{ "demotion_gate.policy_writes", test_policy_writes, COUNTER },
	{ "demotion_gate.open_gate_gives_the_right_targets",
	  test_right_targets, TWO_NODES },
	{ "demotion_gate.round_trips_of_the_policy",
	  test_round_trips, TWO_NODES },
	{ "demotion_gate.cpus_leave_under_another_policy",
	  test_other_policy, COUNTER | NODE_CPUS },
	{ "demotion_gate.memory_leaves_under_another_policy",
	  test_other_policy, COUNTER | NODE_BLOCKS },
	{ "demotion_gate.hundred_cpu_cycles_rebuild_nothing",
	  test_cycles, COUNTER | A_CPU },
	{ "demotion_gate.hundred_block_cycles_rebuild_nothing",
	  test_cycles, COUNTER | A_BLOCK },
	{ "demotion_gate.pages_are_demoted", test_pages_are_demoted },
	{ "demotion_gate.demotion_comes_back", test_demotion_comes_back },
	/* Once for each policy */
	{ "policy.%s.files", test_files },
	{ "policy.%s.cpu_events", test_events, COUNTER | A_CPU },
	{ "policy.%s.block_events", test_events, COUNTER | A_BLOCK },
	{ "policy.%s.node_cpu_events", test_node_events, COUNTER | NODE_CPUS },
	{ "policy.%s.node_memory_events",
	  test_node_events, COUNTER | NODE_BLOCKS },
	{ "policy.%s.cancelled_offline",
	  test_cancelled, COUNTER | A_BLOCK | INJECTION },
	{ "policy.%s.cancelled_offline_of_a_node",
	  test_cancelled, COUNTER | NODE_BLOCKS | INJECTION },
};

/* The parent */

static bool restore_file(const char *path, const char *text)
{
	return !text[0] || !strcmp(get(path), text) || !put(path, text);
}

static bool restore(void)
{
	bool ok;
	int i;

	/* First, or no block would go offline. */
	ok = restore_file(INJECT, saved_inject);
	for (i = 0; i < nr_parts; i++)
		ok &= restore_part(&shared->parts[i]);
	ok &= restore_file(DEMOTION, saved_demotion);
	/* This one doesn't read as it is written. */
	if (!strstr(get(POLICY), name("[%s]", saved_policy)))
		ok &= !put(POLICY, saved_policy);
	return ok;
}

static void save(void)
{
	char *from = strchr(get(POLICY), '[');
	int id;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || !from)
		ksft_exit_fail_msg("no memory, or no policy in " POLICY "\n");
	snprintf(saved_policy, sizeof(saved_policy), "%.*s",
		 (int)strcspn(from + 1, "]"), from + 1);
	snprintf(saved_demotion, sizeof(saved_demotion), "%s", get(DEMOTION));
	if (access(REBUILDS, R_OK))
		mounted = !mount("debugfs", DEBUGFS, "debugfs", 0, NULL);
	snprintf(saved_inject, sizeof(saved_inject), "%s", get(INJECT));

	for (id = 0; id < MAX_ID; id++) {
		if (access(name(NODES "node%d", id), F_OK))
			continue;
		if (nr_nodes == ARRAY_SIZE(ids))
			ksft_exit_skip("more than 64 nodes\n");
		ids[nr_nodes] = id;
		find_parts(&groups[2 * nr_nodes], nr_nodes, false);
		find_parts(&groups[2 * nr_nodes + 1], nr_nodes, true);
		nr_nodes++;
	}
}

static void run_child(const struct test *test, bool row, pid_t parent)
{
	const char *why;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* If a case fills the machine after all: it and no other. */
	if (getppid() != parent || put("/proc/self/oom_score_adj", "1000"))
		exit(KSFT_FAIL);
	why = lacks(test->needs);
	if (why)
		skip("%s", why);
	if (row)
		set_policy(policy);
	test->run();
	exit(KSFT_PASS);
}

static void finish(const char *signal)
{
	if (mounted)
		umount(DEBUGFS);
	if (signal)
		ksft_exit_fail_msg("%s\n", signal);
	if (ksft_get_fail_cnt())
		ksft_exit_fail();
	if (ksft_get_pass_cnt())
		ksft_exit_pass();
	ksft_print_cnts();
	exit(KSFT_SKIP);
}

static void run(const struct test *test, bool row)
{
	pid_t child, parent = getpid();
	sigset_t signals;
	int status, sig;
	char title[80];
	bool ok;

	/* No handler that could interrupt what puts things back. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);

	snprintf(title, sizeof(title), test->name, policies[policy]);
	ksft_print_msg("RUN %s ...\n", title);
	child = fork();
	if (!child) {
		sigprocmask(SIG_UNBLOCK, &signals, NULL);
		run_child(test, row, parent);
	}
	do {
		sigwait(&signals, &sig);
		if (sig != SIGCHLD)
			kill(child, SIGKILL);
	} while (waitpid(child, &status, sig == SIGCHLD ? WNOHANG : 0) != child);
	ok = restore();
	if (!ok)
		ksft_print_msg("policy, CPUs or blocks are not as they were\n");
	if (sig != SIGCHLD)
		finish(strsignal(sig));
	if (WIFSIGNALED(status))
		ksft_print_msg("%s\n", strsignal(WTERMSIG(status)));
	if (ok && WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
		ksft_test_result_skip("%s: %s\n", title, shared->why);
	else
		ksft_test_result(ok && !status, "%s\n", title);
}

int main(void)
{
	unsigned int plan = 0;
	size_t i;

	setlinebuf(stdout);
	ksft_print_header();
	if (geteuid())
		ksft_exit_skip("needs root\n");
	if (access(POLICY, F_OK))
		ksft_exit_skip("this kernel has no " POLICY "\n");
	save();
	for (i = 0; i < ARRAY_SIZE(tests); i++)
		plan += strchr(tests[i].name, '%') ? NR_POLICIES : 1;
	ksft_set_plan(plan);
	for (policy = 0; policy < NR_POLICIES; policy++)
		for (i = 0; i < ARRAY_SIZE(tests); i++)
			if (strchr(tests[i].name, '%'))
				run(&tests[i], true);
	/* With those last that leave memory in another state. */
	for (i = 0; i < ARRAY_SIZE(tests); i++)
		if (!strchr(tests[i].name, '%'))
			run(&tests[i], false);
	finish(NULL);
}
