// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the demotion gate, /sys/kernel/mm/numa/demotion_gate
 *
 * They take CPUs and memory blocks offline and online again, and change the
 * policy. Whatever a case leaves behind, also one that an ASSERT_*() or the
 * harness's time limit ended, is put right by the next case's setup, and after
 * the last one when the program exits.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <stdbool.h>
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

#include "../kselftest_harness.h"

#define NUMA		"/sys/kernel/mm/numa/"
#define POLICY		NUMA "demotion_gate/policy"
#define GATE_OPEN	NUMA "demotion_gate/open"
#define DEMOTION	NUMA "demotion_enabled"
#define DEBUGFS		"/sys/kernel/debug"
#define REBUILDS	DEBUGFS "/demotion_gate/rebuilds"
#define SKIPPED		DEBUGFS "/demotion_gate/skipped"
#define INJECT		DEBUGFS "/notifier-error-inject/memory/actions/MEM_GOING_OFFLINE/error"
#define NODES		"/sys/devices/system/node/"
#define CPUS		"/sys/devices/system/cpu/"
#define BLOCKS		"/sys/devices/system/memory/"
#define TIERS		"/sys/devices/virtual/memory_tiering/"

#define MAX_IDS		8192	/* CPUs or nodes */
#define MAX_NODES	1024
#define MAX_TIERS	64
#define LINE		4096
#define MIB		(1024 * 1024UL)

/* Without KVM a CPU takes 100 ms, and far more in a kernel with debugging. */
#define SECONDS		600

static const char * const policies[] = { "auto", "always", "never" };

/* A set of CPUs or of nodes. */
struct mask {
	bool has[MAX_IDS];
};

/* A CPU or a memory block: what one can take offline. */
struct part {
	bool is_cpu;
	bool fixed;		/* has no switch, or is known to refuse */
	bool online;		/* when the program started */
	int id;
	int node;
	char zone[16];		/* of a block that is online */
};

struct counts {
	long rebuilds;
	long skipped;
};

/* What the program found when it started. */
static struct part *parts;
static int nr_parts;
static char saved_policy[16], saved_demotion[16], saved_inject[16];
static bool saved, mounted;
static pid_t keeper;

/* What the forked cases have to tell the program, and each other. */
static struct {
	pid_t running;		/* the process group of the case */
	int block;		/* an index of parts[] known to go and come back */
	size_t pressed;		/* bytes that it took until pages were demoted */
} *shared;

/* Chosen by lacks() for the case that asked. */
static struct part *cpu, *block;
static struct part **node_cpus, **node_blocks;
static int nr_node_cpus, nr_node_blocks, movable_node;

/* An event that had to be repeated spoils totals over many events. */
static int repeated;

/* Files */

static ssize_t put_bytes(const char *path, const char *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t ret;

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
	ssize_t ret = put_bytes(path, text, strlen(text));

	return ret < 0 ? ret : 0;
}

/* What can't be read reads as "". */
static ssize_t get(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t ret;

	text[0] = '\0';
	if (fd < 0)
		return -errno;
	do {
		ret = read(fd, text + len, size - 1 - len);
		if (ret > 0)
			len += ret;
	} while (ret > 0);
	close(fd);
	text[ret < 0 ? 0 : len] = '\0';
	return ret < 0 ? ret : (ssize_t)len;
}

static long get_number(const char *path)
{
	char text[32];

	return get(path, text, sizeof(text)) > 0 ? strtol(text, NULL, 0) : -1;
}

/* Sets, in the kernel's notation: "0-2,5" */

static void parse_list(const char *text, struct mask *mask)
{
	memset(mask, 0, sizeof(*mask));
	while (*text >= '0' && *text <= '9') {
		char *end;
		long from = strtol(text, &end, 10);
		long to = *end == '-' ? strtol(end + 1, &end, 10) : from;

		for (; from <= to && from < MAX_IDS; from++)
			mask->has[from] = true;
		text = *end == ',' ? end + 1 : end;
	}
}

static void print_list(const struct mask *mask, char *text, size_t size)
{
	size_t len = 0;
	int from, to;

	text[0] = '\0';
	for (from = 0; from < MAX_IDS; from = to + 1) {
		to = from;
		if (!mask->has[from])
			continue;
		while (to + 1 < MAX_IDS && mask->has[to + 1])
			to++;
		if (len < size)
			len += snprintf(text + len, size - len,
					from == to ? "%s%d" : "%s%d-%d",
					len ? "," : "", from, to);
	}
}

static int weight(const struct mask *mask)
{
	int id, count = 0;

	for (id = 0; id < MAX_IDS; id++)
		count += mask->has[id];
	return count;
}

static void get_nodes(const char *state, struct mask *nodes)
{
	char path[128], text[LINE];

	snprintf(path, sizeof(path), NODES "%s", state);
	get(path, text, sizeof(text));
	parse_list(text, nodes);
}

static int count_memory_nodes(void)
{
	struct mask nodes;

	get_nodes("has_memory", &nodes);
	return weight(&nodes);
}

/* CPUs and memory blocks */

static void part_path(const struct part *part, const char *file, char *path, size_t size)
{
	snprintf(path, size, "%s%d/%s", part->is_cpu ? CPUS "cpu" : BLOCKS "memory",
		 part->id, file);
}

static bool part_is_online(const struct part *part)
{
	char path[128], text[32];

	part_path(part, part->is_cpu ? "online" : "state", path, sizeof(path));
	get(path, text, sizeof(text));
	return !strcmp(text, "1\n") || !strcmp(text, "online\n");
}

static int switch_part(const struct part *part, bool on)
{
	char path[128];

	part_path(part, part->is_cpu ? "online" : "state", path, sizeof(path));
	if (part->is_cpu)
		return put(path, on ? "1" : "0");
	if (!on)
		return put(path, "offline");
	/* Plain "online" may choose another zone than the block was in. */
	return put(path, strcmp(part->zone, "Movable") ? "online_kernel" : "online_movable");
}

static int node_of(const struct part *part)
{
	struct dirent *entry;
	char path[128];
	int node = -1;
	DIR *dir;

	part_path(part, "", path, sizeof(path));
	dir = opendir(path);
	while (dir && node < 0 && (entry = readdir(dir)))
		if (sscanf(entry->d_name, "node%d", &node) != 1)
			node = -1;
	if (dir)
		closedir(dir);
	return node;
}

static int compare_parts(const void *left, const void *right)
{
	const struct part *a = left, *b = right;

	return a->is_cpu != b->is_cpu ? a->is_cpu - b->is_cpu : a->id - b->id;
}

static void save_parts(const char *where, const char *format, bool is_cpu)
{
	DIR *dir = opendir(where);
	struct dirent *entry;
	char path[128];

	while (dir && (entry = readdir(dir))) {
		struct part part = { .is_cpu = is_cpu };
		struct part *more;

		if (sscanf(entry->d_name, format, &part.id) != 1)
			continue;
		part.node = node_of(&part);
		if (is_cpu) {
			/* One that can't go offline has no such file. */
			part_path(&part, "online", path, sizeof(path));
			part.fixed = access(path, W_OK);
			part.online = part.fixed || part_is_online(&part);
		} else {
			part.online = part_is_online(&part);
			part_path(&part, "valid_zones", path, sizeof(path));
			get(path, part.zone, sizeof(part.zone));
			part.zone[strcspn(part.zone, "\n ")] = '\0';
			part.fixed = !part.zone[0] || !strcmp(part.zone, "none");
		}
		more = realloc(parts, (nr_parts + 1) * sizeof(*parts));
		if (!more)
			break;
		parts = more;
		parts[nr_parts++] = part;
	}
	if (dir)
		closedir(dir);
}

/* Saving and restoring */

static bool restore_file(const char *path, const char *text)
{
	char now[64];

	get(path, now, sizeof(now));
	return !text[0] || !strcmp(now, text) || !put(path, text);
}

static bool restore_part(const struct part *part)
{
	int tries;

	/* A block's pages may be busy for a moment, and so may CPU hotplug. */
	for (tries = 0; tries < 50; tries++) {
		if (part->fixed || part_is_online(part) == part->online ||
		    !switch_part(part, part->online))
			return true;
		usleep(100000);
	}
	return false;
}

/* Touches only what differs, so that it costs a case that behaved nothing. */
static bool restore(void)
{
	char now[64], wanted[32];
	bool ok = true;
	int i;

	if (!saved)
		return true;
	/* First, or no block would go offline. */
	ok &= restore_file(INJECT, saved_inject);
	for (i = 0; i < nr_parts; i++)
		ok &= restore_part(&parts[i]);
	ok &= restore_file(DEMOTION, saved_demotion);
	/* This one doesn't read as it is written. */
	get(POLICY, now, sizeof(now));
	snprintf(wanted, sizeof(wanted), "[%s]", saved_policy);
	if (!strstr(now, wanted))
		ok &= !put(POLICY, saved_policy);
	return ok;
}

static void restore_at_exit(void)
{
	if (getpid() != keeper)
		return;
	if (!restore())
		printf("# policy, CPUs or memory blocks are not as they were\n");
	if (mounted)
		umount(DEBUGFS);
}

/*
 * The cases are in process groups of their own, so a ^C or the timeout(1) of
 * the test runner doesn't reach them.
 */
static void stop(int sig)
{
	if (getpid() == keeper) {
		if (shared->running > 0)
			kill(-shared->running, SIGKILL);
		/* One of them may be within a write that takes a CPU away. */
		while (waitpid(-1, NULL, 0) > 0)
			;
		restore_at_exit();
	}
	_exit(128 + sig);
}

/*
 * Before main(), which is the harness's: the harness forks for each case, so
 * only what is known by then is known to all of them.
 */
static void __attribute__((constructor)) save(void)
{
	char text[64];
	char *from, *to;

	keeper = getpid();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		exit(KSFT_FAIL);
	shared->block = -1;

	get(POLICY, text, sizeof(text));
	from = strchr(text, '[');
	to = strchr(text, ']');
	/* Without these two nothing will be changed. */
	if (geteuid() || !from || !to || to - from > (long)sizeof(saved_policy))
		return;
	snprintf(saved_policy, sizeof(saved_policy), "%.*s", (int)(to - from - 1), from + 1);

	if (access(REBUILDS, R_OK))
		mounted = !mount("debugfs", DEBUGFS, "debugfs", 0, NULL);
	get(DEMOTION, saved_demotion, sizeof(saved_demotion));
	get(INJECT, saved_inject, sizeof(saved_inject));
	save_parts(CPUS, "cpu%d", true);
	save_parts(BLOCKS, "memory%d", false);
	qsort(parts, nr_parts, sizeof(*parts), compare_parts);
	saved = true;

	/* So that stop() can wait for the children of a case as well. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	signal(SIGHUP, stop);
	atexit(restore_at_exit);
}

/* Each case starts from here; that the last one's teardown ran is not sure. */
static bool begin(void)
{
	shared->running = getpgrp();
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	return restore();
}

/* What a case needs */

enum {
	COUNTERS	= 1 << 0,
	CPU		= 1 << 1,	/* one whose node keeps another */
	BLOCK		= 1 << 2,	/* likewise */
	TWO_NODES	= 1 << 3,	/* with memory */
	NODE_CPUS	= 1 << 4,	/* all CPUs of a node, but not of all nodes */
	NODE_BLOCKS	= 1 << 5,	/* all memory of one of two nodes */
	INJECTION	= 1 << 6,
};

/* How many parts were online in @node at the start, and how many can't go? */
static int count_parts(bool is_cpu, int node, int *fixed)
{
	int i, count = 0;

	*fixed = 0;
	for (i = 0; i < nr_parts; i++) {
		if (parts[i].is_cpu != is_cpu || parts[i].node != node || !parts[i].online)
			continue;
		count++;
		*fixed += parts[i].fixed;
	}
	return count;
}

static bool find_cpu(void)
{
	int i, fixed;

	for (i = nr_parts; !cpu && i--;)
		if (parts[i].is_cpu && parts[i].online && !parts[i].fixed &&
		    count_parts(true, parts[i].node, &fixed) > 1)
			cpu = &parts[i];
	return cpu;
}

/* From the highest one down: the kernel's own memory is mostly in low ones. */
static bool find_block(void)
{
	int i, fixed, tries = 64;

	for (i = shared->block < 0 ? nr_parts : 0; i-- && tries;) {
		struct part *part = &parts[i];

		if (part->is_cpu || !part->online || part->fixed || part->node < 0 ||
		    count_parts(false, part->node, &fixed) < 2)
			continue;
		tries--;
		/* Nothing but trying tells whether a block can go. */
		if (!switch_part(part, false) && restore_part(part)) {
			shared->block = i;
			break;
		}
	}
	if (shared->block >= 0)
		block = &parts[shared->block];
	return block;
}

static int collect_parts(bool is_cpu, int node, struct part ***list)
{
	int i, count = 0;

	*list = calloc(nr_parts, sizeof(**list));
	for (i = 0; *list && i < nr_parts; i++)
		if (parts[i].is_cpu == is_cpu && parts[i].node == node && parts[i].online)
			(*list)[count++] = &parts[i];
	return count;
}

static bool find_node_cpus(void)
{
	struct mask nodes;
	int node, fixed;

	get_nodes("has_cpu", &nodes);
	if (weight(&nodes) < 2)
		return false;
	for (node = MAX_NODES; !nr_node_cpus && node--;)
		if (nodes.has[node] && count_parts(true, node, &fixed) && !fixed)
			nr_node_cpus = collect_parts(true, node, &node_cpus);
	return nr_node_cpus;
}

/* In kB, -1 if there is no such line; node -1 is the whole machine. */
static long read_meminfo(int node, const char *key)
{
	char path[128] = "/proc/meminfo", text[LINE];
	const char *at;

	if (node >= 0)
		snprintf(path, sizeof(path), NODES "node%d/meminfo", node);
	get(path, text, sizeof(text));
	at = strstr(text, key);
	return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

static bool find_node_blocks(void)
{
	long used, room;
	struct mask nodes;
	int node, fixed, i;

	get_nodes("has_memory", &nodes);
	if (weight(&nodes) != 2)
		return false;
	for (node = MAX_NODES; !nr_node_blocks && node--;) {
		if (!nodes.has[node] || !count_parts(false, node, &fixed) || fixed)
			continue;
		/* What is in use there must find room elsewhere. */
		used = read_meminfo(node, "MemUsed:");
		room = read_meminfo(-1, "MemFree:") - read_meminfo(node, "MemFree:");
		if (used > room / 2)
			continue;
		nr_node_blocks = collect_parts(false, node, &node_blocks);
		movable_node = node;
		for (i = 0; i < nr_node_blocks; i++)
			if (strcmp(node_blocks[i]->zone, "Movable"))
				break;
		if (i < nr_node_blocks)
			nr_node_blocks = 0;
	}
	return nr_node_blocks;
}

/* Why the case can't run here, or NULL. */
static const char *lacks(unsigned int needs)
{
	if (geteuid())
		return "needs root";
	if (access(POLICY, F_OK))
		return "this kernel has no " POLICY;
	if (!saved)
		return POLICY " does not show a policy";
	if ((needs & COUNTERS) && (get_number(REBUILDS) < 0 || get_number(SKIPPED) < 0))
		return "needs the counters in " DEBUGFS "/demotion_gate";
	if ((needs & TWO_NODES) && count_memory_nodes() < 2)
		return "needs two nodes with memory";
	if ((needs & INJECTION) && access(INJECT, W_OK))
		return "needs CONFIG_MEMORY_NOTIFIER_ERROR_INJECT, memory-notifier-error-inject";
	if ((needs & NODE_CPUS) && !find_node_cpus())
		return "needs two nodes with CPUs, and in one of them none that must stay";
	if ((needs & NODE_BLOCKS) && !find_node_blocks())
		return "needs two nodes with memory, and in one of them only ZONE_MOVABLE";
	if ((needs & CPU) && !find_cpu())
		return "needs a CPU that can go offline, in a node that keeps another";
	if ((needs & BLOCK) && !find_block())
		return "needs a memory block that can go offline, in a node that keeps another";
	return NULL;
}

/* What the gate says and does */

static void read_counts(struct counts *counts)
{
	counts->rebuilds = get_number(REBUILDS);
	counts->skipped = get_number(SKIPPED);
}

static bool is_open(void)
{
	return get_number(GATE_OPEN) == 1;
}

static bool should_be_open(const char *policy)
{
	if (!strcmp(policy, "auto"))
		return count_memory_nodes() > 1;
	return !strcmp(policy, "always");
}

/* Both files, byte for byte. */
static void expect_policy(struct __test_metadata *_metadata, const char *policy)
{
	char text[64], expected[64] = "";
	size_t i, len = 0;

	for (i = 0; i < ARRAY_SIZE(policies); i++)
		len += snprintf(expected + len, sizeof(expected) - len,
				strcmp(policies[i], policy) ? "%s%s" : "%s[%s]",
				i ? " " : "", policies[i]);
	snprintf(expected + len, sizeof(expected) - len, "\n");
	get(POLICY, text, sizeof(text));
	EXPECT_STREQ(expected, text);

	get(GATE_OPEN, text, sizeof(text));
	EXPECT_STREQ(should_be_open(policy) ? "1\n" : "0\n", text) {
		TH_LOG("open, with policy %s", policy);
	}
}

static void set_policy(struct __test_metadata *_metadata, const char *policy)
{
	ASSERT_EQ(0, put(POLICY, policy)) {
		TH_LOG("writing %s to " POLICY, policy);
	}
}

static bool expect_counts(struct __test_metadata *_metadata, const char *what,
			  const struct counts *before, long rebuilds, long skipped)
{
	struct counts now;

	read_counts(&now);
	now.rebuilds -= before->rebuilds;
	now.skipped -= before->skipped;
	EXPECT_EQ(rebuilds, now.rebuilds) {
		TH_LOG("rebuilds, by %s", what);
	}
	EXPECT_EQ(skipped, now.skipped) {
		TH_LOG("skipped, by %s", what);
	}
	return now.rebuilds == rebuilds && now.skipped == skipped;
}

/* One event moves one counter by one. */
static bool expect_event(struct __test_metadata *_metadata, const struct part *part, bool on,
			 bool rebuilds)
{
	struct counts before;
	char what[64];
	int ret, tries = 0;

	snprintf(what, sizeof(what), "%s %d %s", part->is_cpu ? "CPU" : "memory block",
		 part->id, on ? "online" : "offline");
	/*
	 * A block with busy pages is refused, and may or may not get as far
	 * as an event of its own. So start over, with the counters as well.
	 */
	do {
		if (tries) {
			repeated++;
			usleep(200000);
		}
		read_counts(&before);
		ret = switch_part(part, on);
	} while ((ret == -EBUSY || ret == -EAGAIN) && ++tries < 20);
	ASSERT_EQ(0, ret) {
		TH_LOG("%s: %s", what, strerror(-ret));
	}
	return expect_counts(_metadata, what, &before, rebuilds, !rebuilds);
}

static void read_targets(int node, char *text, size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), NODES "node%d/demotion_targets", node);
	if (get(path, text, size) < 0)
		snprintf(text, size, "(no %s)\n", path);
}

/* Of all nodes, "0:1\n1:\n": one string to compare and to show. */
static void read_all_targets(char *text, size_t size)
{
	char targets[LINE];
	struct mask nodes;
	size_t len = 0;
	int node;

	text[0] = '\0';
	get_nodes("online", &nodes);
	for (node = 0; node < MAX_NODES; node++) {
		if (!nodes.has[node] || len >= size)
			continue;
		read_targets(node, targets, sizeof(targets));
		len += snprintf(text + len, size - len, "%d:%s", node, targets);
	}
}

static void expect_targets(struct __test_metadata *_metadata, const char *expected,
			   const char *when)
{
	char text[LINE];

	read_all_targets(text, sizeof(text));
	EXPECT_STREQ(expected, text) {
		TH_LOG("demotion_targets, %s", when);
	}
}

static void expect_no_targets(struct __test_metadata *_metadata, const char *when)
{
	char targets[LINE];
	struct mask nodes;
	int node;

	get_nodes("online", &nodes);
	for (node = 0; node < MAX_NODES; node++) {
		if (!nodes.has[node])
			continue;
		read_targets(node, targets, sizeof(targets));
		EXPECT_STREQ("\n", targets) {
			TH_LOG("node %d, %s", node, when);
		}
	}
}

/* Where pages may go */

struct tier {
	int id;
	struct mask nodes;
};

static struct tier tiers[MAX_TIERS];
static int nr_tiers;

static int compare_tiers(const void *left, const void *right)
{
	const struct tier *a = left, *b = right;

	return a->id - b->id;
}

/*
 * Not while hotplug is under way: reading a tier's nodelist waits for a lock
 * that is held while the kernel removes the tier and waits for its readers.
 */
static void read_tiers(void)
{
	DIR *dir = opendir(TIERS);
	struct dirent *entry;
	char path[320], text[LINE];

	nr_tiers = 0;
	while (dir && nr_tiers < MAX_TIERS && (entry = readdir(dir))) {
		if (sscanf(entry->d_name, "memory_tier%d", &tiers[nr_tiers].id) != 1)
			continue;
		snprintf(path, sizeof(path), TIERS "%s/nodelist", entry->d_name);
		get(path, text, sizeof(text));
		parse_list(text, &tiers[nr_tiers++].nodes);
	}
	if (dir)
		closedir(dir);
	/* The higher the number, the slower the memory. */
	qsort(tiers, nr_tiers, sizeof(tiers[0]), compare_tiers);
}

/*
 * The nodes that @node may demote to first.
 *
 * Return: whether it must demote to all of them. The kernel chooses by
 * distance, which may leave out some if there are more than two nodes.
 */
static bool allowed_targets(int node, struct mask *allowed)
{
	struct mask memory, cpus;
	int i, id, with_cpus = 0;

	memset(allowed, 0, sizeof(*allowed));
	get_nodes("has_memory", &memory);
	if (!memory.has[node])
		return true;

	if (!access(TIERS, F_OK)) {
		read_tiers();
		for (i = 0; i < nr_tiers - 1; i++)
			if (tiers[i].nodes.has[node])
				*allowed = tiers[i + 1].nodes;
		return weight(&memory) == 2 || weight(allowed) < 2;
	}

	/*
	 * Kernels without tiers start from the nodes with CPUs and never lead
	 * back to one that the path started from.
	 */
	get_nodes("has_cpu", &cpus);
	for (id = 0; id < MAX_NODES; id++) {
		allowed->has[id] = memory.has[id] && !cpus.has[id] && id != node;
		with_cpus += memory.has[id] && cpus.has[id];
	}
	if (weight(&memory) > 2 || !with_cpus)
		return !weight(allowed);
	if (!cpus.has[node])
		memset(allowed, 0, sizeof(*allowed));
	return true;
}

static void expect_right_targets(struct __test_metadata *_metadata)
{
	char text[LINE], expected[LINE];
	struct mask nodes, targets, allowed;
	int node, id;

	get_nodes("online", &nodes);
	for (node = 0; node < MAX_NODES; node++) {
		bool exact;

		if (!nodes.has[node])
			continue;
		read_targets(node, text, sizeof(text) - 1);
		parse_list(text, &targets);
		exact = allowed_targets(node, &allowed);
		print_list(exact ? &allowed : &targets, expected, sizeof(expected) - 1);
		/* With a subset, this leaves the notation to compare. */
		strcat(expected, "\n");
		EXPECT_STREQ(expected, text) {
			TH_LOG("demotion_targets of node %d", node);
		}
		for (id = 0; id < MAX_NODES; id++) {
			EXPECT_FALSE(targets.has[id] && !allowed.has[id]) {
				TH_LOG("node %d is no target for node %d", id, node);
			}
		}
		/* Without tiers a path may have ended before this node. */
		if (!exact && !access(TIERS, F_OK)) {
			EXPECT_NE(0, weight(&targets)) {
				TH_LOG("node %d has no target", node);
			}
		}
	}
}

/* Whatever the topology and the policy */

FIXTURE(demotion_gate) {
	struct counts before;
};

FIXTURE_SETUP(demotion_gate)
{
	ASSERT_TRUE(begin());
	read_counts(&self->before);
}

FIXTURE_TEARDOWN(demotion_gate)
{
	EXPECT_TRUE(restore());
}

static int mode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? -errno : (int)(st.st_mode & 07777);
}

TEST_F(demotion_gate, modes)
{
	const char *why = lacks(0);
	struct mask nodes;
	char path[128];
	int node;

	if (why)
		SKIP(return, "%s", why);

	EXPECT_EQ(0644, mode_of(POLICY));
	EXPECT_EQ(0444, mode_of(GATE_OPEN));
	get_nodes("online", &nodes);
	EXPECT_LT(0, weight(&nodes));
	for (node = 0; node < MAX_NODES; node++) {
		if (!nodes.has[node])
			continue;
		snprintf(path, sizeof(path), NODES "node%d/demotion_targets", node);
		EXPECT_EQ(0444, mode_of(path)) {
			TH_LOG("%s", path);
		}
	}
}

#define TEXT(string)	{ .bytes = (string), .len = sizeof(string) - 1 }

TEST_F(demotion_gate, bad_policy_is_refused)
{
	static const struct {
		const char *bytes;
		size_t len;
	} bad[] = {
		TEXT("\n"), TEXT(" "), TEXT(" auto"), TEXT("auto "), TEXT("\nauto"),
		TEXT("AUTO"), TEXT("Always"), TEXT("NEVER\n"), TEXT("auto\nnever"),
		TEXT("never\nauto\n"), TEXT("auto\n\n"), TEXT("auto never"), TEXT("autox"),
		TEXT("aut"), TEXT("a"), TEXT("alwaysnever"), TEXT("1"), TEXT("0"), TEXT("y"),
		TEXT("[auto]"), TEXT("[auto] always never\n"), TEXT("auto\0never"),
		TEXT("auto\0"), TEXT("\0auto"), TEXT("\0"), TEXT("\xff\xfe\x80\x7f"),
		TEXT("auto\xff"), TEXT("always\x01"), TEXT("\x1b[2J"), TEXT("%s%n"),
	};
	const char *why = lacks(0);
	char text[5000];
	size_t i, j;

	if (why)
		SKIP(return, "%s", why);

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		set_policy(_metadata, policies[i]);
		read_counts(&self->before);

		for (j = 0; j < ARRAY_SIZE(bad); j++) {
			EXPECT_EQ(-EINVAL, put_bytes(POLICY, bad[j].bytes, bad[j].len)) {
				/* By number: some would upset a terminal. */
				TH_LOG("input %zu", j);
			}
		}
		/* Longer than the page that sysfs hands to the kernel. */
		memset(text, 'a', sizeof(text));
		EXPECT_EQ(-EINVAL, put_bytes(POLICY, text, sizeof(text)));
		memcpy(text, "auto", 4);
		memset(text + 4, '\n', sizeof(text) - 4);
		EXPECT_EQ(-EINVAL, put_bytes(POLICY, text, sizeof(text)));
		memset(text, 0, sizeof(text));
		memcpy(text, "never", 5);
		EXPECT_EQ(-EINVAL, put_bytes(POLICY, text, sizeof(text)));
		/* sysfs answers this one itself. */
		EXPECT_EQ(0, put_bytes(POLICY, "", 0));

		expect_policy(_metadata, policies[i]);
		expect_counts(_metadata, "bad input", &self->before, 0, 0);
	}
}

TEST_F(demotion_gate, good_policy_is_taken)
{
	const char *why = lacks(0);
	char text[16];
	size_t i, j;

	if (why)
		SKIP(return, "%s", why);

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		/* As printf(1) and as echo(1) write it. */
		for (j = 0; j < 2; j++) {
			ssize_t len = snprintf(text, sizeof(text), "%s%s", policies[i],
					       j ? "\n" : "");

			set_policy(_metadata, policies[(i + 1) % ARRAY_SIZE(policies)]);
			EXPECT_EQ(len, put_bytes(POLICY, text, len));
			expect_policy(_metadata, policies[i]);
		}
	}
}

TEST_F(demotion_gate, open_cannot_be_written)
{
	const char *why = lacks(0);
	ssize_t ret;
	size_t i;

	if (why)
		SKIP(return, "%s", why);

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		set_policy(_metadata, policies[i]);
		read_counts(&self->before);
		/* Which error depends on where the kernel stops root. */
		ret = put_bytes(GATE_OPEN, is_open() ? "0" : "1", 1);
		EXPECT_TRUE(ret == -EACCES || ret == -EPERM || ret == -EIO) {
			TH_LOG("write returned %zd", ret);
		}
		expect_policy(_metadata, policies[i]);
		expect_counts(_metadata, "a write to open", &self->before, 0, 0);
	}
}

/* All nine: what closes or leaves the gate as it is rebuilds nothing. */
TEST_F(demotion_gate, policy_writes)
{
	const char *why = lacks(COUNTERS);
	char what[64];
	size_t from, to;

	if (why)
		SKIP(return, "%s", why);

	for (from = 0; from < ARRAY_SIZE(policies); from++) {
		for (to = 0; to < ARRAY_SIZE(policies); to++) {
			bool opens = !should_be_open(policies[from]) &&
				     should_be_open(policies[to]);

			set_policy(_metadata, policies[from]);
			read_counts(&self->before);
			set_policy(_metadata, policies[to]);
			snprintf(what, sizeof(what), "%s to %s", policies[from], policies[to]);
			expect_counts(_metadata, what, &self->before, opens, 0);
			expect_policy(_metadata, policies[to]);
		}
	}
}

TEST_F(demotion_gate, closed_gate_gives_no_target)
{
	const char *why = lacks(0);
	size_t i;

	if (why)
		SKIP(return, "%s", why);

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		set_policy(_metadata, policies[i]);
		set_policy(_metadata, "never");
		expect_no_targets(_metadata, "policy never");
	}
	if (!should_be_open("auto")) {
		set_policy(_metadata, "auto");
		expect_no_targets(_metadata, "policy auto, one node with memory");
		/* Open, but there is nowhere to demote to. */
		set_policy(_metadata, "always");
		expect_no_targets(_metadata, "policy always, one node with memory");
	}
}

TEST_F(demotion_gate, open_gate_gives_the_right_targets)
{
	const char *why = lacks(TWO_NODES);

	if (why)
		SKIP(return, "%s", why);

	set_policy(_metadata, "auto");
	expect_right_targets(_metadata);
	set_policy(_metadata, "always");
	expect_right_targets(_metadata);
}

TEST_F(demotion_gate, round_trips_of_the_policy)
{
	static const char * const trips[][3] = {
		{ "always", "auto" }, { "never", "auto" }, { "always", "never", "auto" },
		{ "never", "always", "auto" }, { "auto", "auto" },
	};
	const char *why = lacks(TWO_NODES);
	char expected[LINE], when[64];
	size_t i, j;

	if (why)
		SKIP(return, "%s", why);

	set_policy(_metadata, "auto");
	read_all_targets(expected, sizeof(expected));
	for (i = 0; i < ARRAY_SIZE(trips); i++) {
		for (j = 0; j < ARRAY_SIZE(trips[i]) && trips[i][j]; j++)
			set_policy(_metadata, trips[i][j]);
		snprintf(when, sizeof(when), "auto, then %s, then %s", trips[i][0], trips[i][1]);
		expect_targets(_metadata, expected, when);
	}
}

/*
 * The gate must not believe that the targets fit the CPUs because they did
 * before it was closed, or be surprised by what 'always' kept current.
 */
TEST_F_TIMEOUT(demotion_gate, cpus_leave_under_another_policy, SECONDS)
{
	static const char * const others[] = { "always", "never" };
	const char *why = lacks(COUNTERS | NODE_CPUS);
	char expected[LINE];
	bool open;
	size_t i;
	int j;

	if (why)
		SKIP(return, "%s", why);

	set_policy(_metadata, "auto");
	open = should_be_open("auto");
	read_all_targets(expected, sizeof(expected));
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		bool closed = !should_be_open(others[i]);

		set_policy(_metadata, others[i]);
		for (j = nr_node_cpus; j--;)
			expect_event(_metadata, node_cpus[j], false, !closed);

		read_counts(&self->before);
		set_policy(_metadata, "auto");
		expect_counts(_metadata, "auto with a node's CPUs gone", &self->before,
			      open && closed, 0);
		if (open)
			expect_right_targets(_metadata);

		for (j = 0; j < nr_node_cpus; j++)
			expect_event(_metadata, node_cpus[j], true, open && !j);
		expect_targets(_metadata, expected, "all CPUs back");
	}
}

TEST_F_TIMEOUT(demotion_gate, memory_leaves_under_another_policy, SECONDS)
{
	static const char * const others[] = { "always", "never" };
	const char *why = lacks(COUNTERS | NODE_BLOCKS);
	char expected[LINE];
	size_t i;
	int j;

	if (why)
		SKIP(return, "%s", why);

	set_policy(_metadata, "auto");
	read_all_targets(expected, sizeof(expected));
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		bool rebuilds = should_be_open(others[i]);

		/* Away under the other policy, back under auto ... */
		set_policy(_metadata, others[i]);
		for (j = nr_node_blocks; j--;)
			expect_event(_metadata, node_blocks[j], false, rebuilds);
		set_policy(_metadata, "auto");
		expect_policy(_metadata, "auto");
		for (j = 0; j < nr_node_blocks; j++)
			expect_event(_metadata, node_blocks[j], true, !j);
		expect_targets(_metadata, expected, "a node back under auto");

		/* ... and the other way round. */
		for (j = nr_node_blocks; j--;)
			expect_event(_metadata, node_blocks[j], false, false);
		set_policy(_metadata, others[i]);
		for (j = 0; j < nr_node_blocks; j++)
			expect_event(_metadata, node_blocks[j], true, rebuilds);
		read_counts(&self->before);
		set_policy(_metadata, "auto");
		expect_counts(_metadata, "auto with the node back", &self->before, !rebuilds, 0);
		expect_targets(_metadata, expected, "a node back under another policy");
	}
}

static void expect_cycles(struct __test_metadata *_metadata, struct part *part)
{
	struct counts before;
	bool ok = true;
	int i;

	set_policy(_metadata, "auto");
	read_counts(&before);
	/* One that goes wrong will do so every time: that's enough to read. */
	for (i = 0; ok && i < 100; i++) {
		ok = expect_event(_metadata, part, false, false);
		ok &= expect_event(_metadata, part, true, false);
	}
	if (ok && !repeated)
		expect_counts(_metadata, "100 cycles", &before, 0, 200);
}

TEST_F_TIMEOUT(demotion_gate, hundred_cpu_cycles_rebuild_nothing, SECONDS)
{
	const char *why = lacks(COUNTERS | CPU);

	if (why)
		SKIP(return, "%s", why);
	expect_cycles(_metadata, cpu);
}

TEST_F_TIMEOUT(demotion_gate, hundred_block_cycles_rebuild_nothing, SECONDS)
{
	const char *why = lacks(COUNTERS | BLOCK);

	if (why)
		SKIP(return, "%s", why);
	expect_cycles(_metadata, block);
}

/* Demotion */

/* All of pgdemote_*, however many this kernel has; -1 if none. */
static long count_demoted(void)
{
	static char text[16 * LINE];
	const char *at = text;
	long count = -1;

	get("/proc/vmstat", text, sizeof(text));
	while ((at = strstr(at, "pgdemote_"))) {
		at = strchr(at, ' ');
		if (!at)
			break;
		count = (count < 0 ? 0 : count) + strtol(at, NULL, 10);
	}
	return count;
}

/*
 * Have the kernel reclaim in @node without being able to run out of memory:
 * pages preferred there, which wakes kswapd but falls back to other nodes.
 *
 * With nothing to reclaim, kswapd gives up until somebody else succeeds. For
 * this, with @insist, also move pages there, for which the kernel reclaims in
 * our context; not when this is bound to fail, since that is logged at length.
 */
static void press(int node, char *memory, size_t size, long enough, bool insist)
{
	static unsigned long mask[MAX_NODES / (8 * sizeof(long))];
	size_t page_size = sysconf(_SC_PAGESIZE), chunk = size / 128 & -page_size, done, i;
	size_t nr = 16 * MIB / page_size;
	void **pages = calloc(nr, sizeof(*pages));
	int *nodes = calloc(nr, sizeof(*nodes)), *status = calloc(nr, sizeof(*status));

	mask[node / (8 * sizeof(long))] = 1UL << node % (8 * sizeof(long));
	if (!pages || !nodes || !status ||
	    syscall(SYS_mbind, memory, size, MPOL_PREFERRED_MANY, mask, MAX_NODES, 0))
		_exit(1);

	for (done = 0; done < size && count_demoted() < enough; done += chunk) {
		if (size - done < chunk)
			chunk = size - done;
		memset(memory + done, 1, chunk);
		/* Leave kswapd its share of the CPU. */
		usleep(20000);
	}
	shared->pressed = done;

	/* The last ones: those most likely to have found no room. */
	for (i = 0; i < nr && (i + 1) * page_size <= done; i++) {
		pages[i] = memory + done - (i + 1) * page_size;
		nodes[i] = node;
	}
	if (insist && count_demoted() < enough)
		syscall(SYS_move_pages, 0, i, pages, nodes, status, MPOL_MF_MOVE);
}

/* Until @enough pages have ever been demoted, or @size is used. */
static int press_in_child(int node, size_t size, long enough, bool insist)
{
	pid_t parent = getpid(), child = fork();
	int status = -1;

	if (!child) {
		char *memory;

		/* If this fills the machine after all: this and no other. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent || put("/proc/self/oom_score_adj", "1000"))
			_exit(1);
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (memory == MAP_FAILED)
			_exit(1);
		press(node, memory, size, enough, insist);
		_exit(0);
	}
	if (child > 0)
		waitpid(child, &status, 0);
	return status;
}

/* What was isolated before the gate closed may still be on its way. */
static bool wait_until_still(void)
{
	long before;
	int i;

	for (i = 0; i < 20; i++) {
		before = count_demoted();
		sleep(1);
		if (count_demoted() == before)
			return true;
	}
	return false;
}

TEST_F_TIMEOUT(demotion_gate, pages_are_demoted, SECONDS)
{
	const char *why = lacks(TWO_NODES);
	char targets[LINE];
	struct mask memory;
	long room, size, before;
	int node;

	if (why)
		SKIP(return, "%s", why);
	if (count_demoted() < 0 || !saved_demotion[0])
		SKIP(return, "needs pgdemote_* in /proc/vmstat and " DEMOTION);

	set_policy(_metadata, "auto");
	get_nodes("has_memory", &memory);
	for (node = 0; node < MAX_NODES; node++) {
		if (!memory.has[node])
			continue;
		read_targets(node, targets, sizeof(targets));
		if (targets[0] >= '0' && targets[0] <= '9')
			break;
	}
	if (node == MAX_NODES)
		SKIP(return, "needs a node that has a demotion target");
	/* Else a full node is out of memory for all that can't be moved. */
	get_nodes("has_normal_memory", &memory);
	memory.has[node] = false;
	if (!weight(&memory))
		SKIP(return, "needs memory beside node %d that is not ZONE_MOVABLE", node);

	/* In kB. Fill the node, and as much again as its target can take. */
	room = read_meminfo(-1, "MemAvailable:") * 85 / 100;
	size = read_meminfo(node, "MemFree:");
	if (size > 8L << 20)
		SKIP(return, "node %d has more free memory than is worth filling", node);
	size += (read_meminfo(-1, "MemFree:") - size) / 2;
	if (size > room)
		size = room;
	if (size < read_meminfo(node, "MemFree:") + 32 * 1024)
		SKIP(return, "not enough memory beside node %d to fill it", node);
	size *= 1024;

	ASSERT_EQ(0, put(DEMOTION, "1"));
	before = count_demoted();
	ASSERT_EQ(0, press_in_child(node, size, before + 1, true));
	EXPECT_LT(before, count_demoted()) {
		TH_LOG("with the gate open, %zu MiB", shared->pressed / MIB);
	}

	set_policy(_metadata, "never");
	ASSERT_TRUE(wait_until_still());
	before = count_demoted();
	ASSERT_EQ(0, press_in_child(node, size, before + 1, false));
	EXPECT_EQ(before, count_demoted()) {
		TH_LOG("with the gate closed, %zu MiB", shared->pressed / MIB);
	}

	/* That it was the gate, and not a node that has nothing to demote. */
	set_policy(_metadata, "auto");
	ASSERT_EQ(0, press_in_child(node, size, before + 1, true));
	EXPECT_LT(before, count_demoted()) {
		TH_LOG("with the gate open again, %zu MiB", shared->pressed / MIB);
	}
}

/* The policy table, row by row */

FIXTURE(policy) {
	bool open;		/* the gate should be, before the event */
	bool always;
};

FIXTURE_VARIANT(policy)
{
	const char *name;
};

FIXTURE_VARIANT_ADD(policy, auto)
{
	.name = "auto",
};

FIXTURE_VARIANT_ADD(policy, always)
{
	.name = "always",
};

FIXTURE_VARIANT_ADD(policy, never)
{
	.name = "never",
};

FIXTURE_SETUP(policy)
{
	ASSERT_TRUE(begin());
	/* A SKIP() here would not keep older harnesses from running the case. */
	if (lacks(0))
		return;
	set_policy(_metadata, variant->name);
	self->open = should_be_open(variant->name);
	self->always = !strcmp(variant->name, "always");
}

FIXTURE_TEARDOWN(policy)
{
	EXPECT_TRUE(restore());
}

TEST_F(policy, files)
{
	const char *why = lacks(0);

	if (why)
		SKIP(return, "%s", why);
	expect_policy(_metadata, variant->name);
}

TEST_F_TIMEOUT(policy, cpu_events, SECONDS)
{
	const char *why = lacks(COUNTERS | CPU);

	if (why)
		SKIP(return, "%s", why);

	expect_event(_metadata, cpu, false, self->always);
	expect_policy(_metadata, variant->name);
	expect_event(_metadata, cpu, true, self->always);
	expect_policy(_metadata, variant->name);
}

TEST_F_TIMEOUT(policy, block_events, SECONDS)
{
	const char *why = lacks(COUNTERS | BLOCK);

	if (why)
		SKIP(return, "%s", why);

	expect_event(_metadata, block, false, self->always);
	expect_policy(_metadata, variant->name);
	expect_event(_metadata, block, true, self->always);
	expect_policy(_metadata, variant->name);
}

/* A node's last CPU goes, its first comes. */
TEST_F_TIMEOUT(policy, node_cpu_events, SECONDS)
{
	const char *why = lacks(COUNTERS | NODE_CPUS);
	char expected[LINE];
	int i;

	if (why)
		SKIP(return, "%s", why);

	read_all_targets(expected, sizeof(expected));
	for (i = nr_node_cpus; i--;)
		expect_event(_metadata, node_cpus[i], false, self->always || (self->open && !i));
	expect_policy(_metadata, variant->name);
	if (self->open)
		expect_right_targets(_metadata);
	else
		expect_no_targets(_metadata, "gate closed, a node's CPUs gone");
	for (i = 0; i < nr_node_cpus; i++)
		expect_event(_metadata, node_cpus[i], true, self->always || (self->open && !i));
	expect_policy(_metadata, variant->name);
	expect_targets(_metadata, expected, "all CPUs back");
}

/* Under auto the gate goes with the node's last block, and comes with its first. */
TEST_F_TIMEOUT(policy, node_memory_events, SECONDS)
{
	const char *why = lacks(COUNTERS | NODE_BLOCKS);
	char expected[LINE];
	int i;

	if (why)
		SKIP(return, "%s", why);

	read_all_targets(expected, sizeof(expected));
	for (i = nr_node_blocks; i--;) {
		ASSERT_EQ(2, count_memory_nodes());
		EXPECT_EQ(self->open, is_open());
		expect_event(_metadata, node_blocks[i], false, self->always);
	}
	ASSERT_EQ(1, count_memory_nodes()) {
		TH_LOG("node %d still has memory", movable_node);
	}
	expect_policy(_metadata, variant->name);
	EXPECT_EQ(self->always, is_open());
	expect_no_targets(_metadata, "one node with memory");

	for (i = 0; i < nr_node_blocks; i++) {
		expect_event(_metadata, node_blocks[i], true, self->always || (self->open && !i));
		ASSERT_EQ(2, count_memory_nodes());
		expect_policy(_metadata, variant->name);
	}
	expect_targets(_metadata, expected, "the node back");
}

/*
 * A kernel that disables the targets before the node's last block goes must
 * enable them again when it stays: no node changed, yet they are due. Whether
 * other cancelled offlines rebuild under auto is up to the kernel.
 */
static void expect_cancelled(struct __test_metadata *_metadata, struct part *part,
			     bool open, bool always)
{
	struct counts before, now;
	char expected[LINE], error[16];
	int ret, tries = 0;

	read_all_targets(expected, sizeof(expected));
	snprintf(error, sizeof(error), "%d", -ENOMEM);
	ASSERT_EQ(0, put(INJECT, error));
	/* Busy pages may have it refused before anyone is notified. */
	do {
		read_counts(&before);
		ret = switch_part(part, false);
	} while (ret == -EBUSY && ++tries < 20 && !usleep(200000));
	read_counts(&now);
	ASSERT_EQ(0, put(INJECT, "0"));
	ASSERT_EQ(-ENOMEM, ret);

	now.rebuilds -= before.rebuilds;
	now.skipped -= before.skipped;
	EXPECT_EQ(1, now.rebuilds + now.skipped);
	EXPECT_LE(always, now.rebuilds);
	EXPECT_GE(open, now.rebuilds);
	EXPECT_EQ(open, is_open());
	expect_targets(_metadata, expected, "after a cancelled offline");
}

TEST_F(policy, cancelled_offline)
{
	const char *why = lacks(COUNTERS | INJECTION | BLOCK);

	if (why)
		SKIP(return, "%s", why);
	expect_cancelled(_metadata, block, self->open, self->always);
}

TEST_F_TIMEOUT(policy, cancelled_offline_of_a_node, SECONDS)
{
	const char *why = lacks(COUNTERS | INJECTION | NODE_BLOCKS);
	int i;

	if (why)
		SKIP(return, "%s", why);
	for (i = nr_node_blocks; --i;)
		expect_event(_metadata, node_blocks[i], false, self->always);
	expect_cancelled(_metadata, node_blocks[0], self->open, self->always);
}

TEST_HARNESS_MAIN
