// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the demotion gate, /sys/kernel/mm/numa/demotion_gate
 *
 * They take CPUs and memory blocks offline and online again, also all of a
 * node, and fill a node. Each case runs in a child. The parent puts back what
 * the child has changed, whatever ended it, and also when it is itself killed
 * by anything but SIGKILL.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../kselftest.h"

#define NUMA		"/sys/kernel/mm/numa/"
#define POLICY		NUMA "demotion_gate/policy"
#define GATE_OPEN	NUMA "demotion_gate/open"
#define DEMOTION	NUMA "demotion_enabled"
#define DEBUGFS		"/sys/kernel/debug/"
#define REBUILDS	DEBUGFS "demotion_gate/rebuilds"
#define INJECT		DEBUGFS "notifier-error-inject/memory/actions/MEM_GOING_OFFLINE/error"
#define NODES		"/sys/devices/system/node/"
#define CPU		"/sys/devices/system/cpu/cpu%d/"
#define BLOCK		"/sys/devices/system/memory/memory%d/"
#define TIERS		"/sys/devices/virtual/memory_tiering/"

#define MAX_ID		1024	/* of a node */
#define MAX_PARTS	65536
#define MIB		(1024 * 1024L)

/* A node goes up to 20 times, within the time that the runner allows. */
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
	bool movable;		/* has a switch, or is in ZONE_MOVABLE */
	bool away;		/* a case took it */
};

/* CPUs or blocks of a node, in the order of their numbers. */
struct group {
	struct part *parts;
	int nr, nr_movable;
};

/* What the children tell the parent, and each other. */
static struct {
	char why[256];			/* the case was skipped */
	struct part parts[MAX_PARTS];
} *shared;

/* Nodes go by their place in ids[], so that 64 bits are enough for a set. */
static int ids[64], nr_nodes, nr_parts, saved_policy;
static char saved_demotion[16], saved_inject[16];
static struct group groups[64][2];	/* of a node: blocks, CPUs */

/* Of the case: the policy it starts with, and what it takes away. */
static int policy;
static struct group group;
static bool whole_node;

/* For use in a child. */
#define fail(...) \
	({ ksft_print_msg(__VA_ARGS__); exit(KSFT_FAIL); })
#define skip(...) \
	({ snprintf(shared->why, sizeof(shared->why), __VA_ARGS__); exit(KSFT_SKIP); })

static const char *name(const char *format, ...)
{
	static char path[256];
	va_list args;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	return path;
}

/* One write: the kernel takes each for a value of its own. */
static int put_bytes(const char *path, const char *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0 || write(fd, bytes, len) < 0)
		ret = -errno;
	if (fd >= 0)
		close(fd);
	return ret;
}

static int put(const char *path, const char *text)
{
	return put_bytes(path, text, strlen(text));
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

/* The number behind @key in a file, or -1. */
static long number_in(const char *path, const char *key)
{
	const char *at = strstr(get(path), key);

	return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

static long count_rebuilds(void)
{
	return number_in(REBUILDS, "");
}

/* In kB. */
static long node_memory(int node, const char *key)
{
	return number_in(name(NODES "node%d/meminfo", ids[node]), key);
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

static int count_memory_nodes(void)
{
	return __builtin_popcountll(get_nodes(NODES "has_memory"));
}

static const char *part_file(const struct part *part)
{
	return name(part->is_cpu ? CPU "online" : BLOCK "state", part->id);
}

static bool part_is_online(const struct part *part)
{
	return !strcmp(get(part_file(part)), part->is_cpu ? "1\n" : "online\n");
}

static int switch_part(struct part *part, bool on)
{
	const char *word = on ? "1" : "0";
	int ret;

	/* Plain "online" may choose another zone than it was in. */
	if (!part->is_cpu)
		word = !on ? "offline" :
		       part->movable ? "online_movable" : "online_kernel";
	part->away = true;
	/* With a page that does not move, offline would go on for good. */
	alarm(10);
	ret = put(part_file(part), word);
	alarm(0);
	return ret;
}

static bool restore_part(struct part *part)
{
	int tries;

	/* CPU hotplug may be busy for a moment. */
	for (tries = 0; part->away && tries < 50; tries++) {
		part->away = !part_is_online(part) && switch_part(part, true);
		if (part->away)
			usleep(100000);
	}
	return !part->away;
}

static void find_parts(int node, bool is_cpu)
{
	struct group *group = &groups[node][is_cpu];
	struct dirent **list;
	int i, nr;

	nr = scandir(name(NODES "node%d", ids[node]), &list, NULL, versionsort);
	group->parts = &shared->parts[nr_parts];
	for (i = 0; i < nr && nr_parts < MAX_PARTS; i++) {
		struct part part = { .is_cpu = is_cpu };

		if (sscanf(list[i]->d_name, is_cpu ? "cpu%d" : "memory%d",
			   &part.id) != 1)
			continue;
		/* A CPU that can't go offline has no such file. */
		part.movable = is_cpu ? !access(part_file(&part), F_OK) :
			!strcmp(get(name(BLOCK "valid_zones", part.id)),
				"Movable\n");
		if ((!is_cpu || part.movable) && !part_is_online(&part))
			continue;
		group->nr++;
		group->nr_movable += part.movable;
		shared->parts[nr_parts++] = part;
	}
}

/* What a case takes away: one whose node keeps another, or all of a node. */
enum { NOTHING, A_BLOCK = 2, A_CPU, NODE_BLOCKS, NODE_CPUS };

static void choose_group(int what)
{
	long room = number_in("/proc/meminfo", "MemFree:") / 4 * 3;
	int node, i, tries = 16, others = -1;
	bool is_cpu = what % 2;

	whole_node = what >= NODE_BLOCKS;
	for (node = nr_nodes; what && node--;) {
		struct group *all = &groups[node][is_cpu];

		others += !!all->nr;
		/* What is in use there must find room elsewhere. */
		if (whole_node && all->nr && all->nr <= MAX_GROUP &&
		    all->nr == all->nr_movable &&
		    (is_cpu || node_memory(node, "MemTotal:") < room))
			group = *all;
		if (whole_node || all->nr < 2)
			continue;
		/* The kernel's own memory is mostly in low blocks. */
		for (i = all->nr; i-- && !group.nr && tries-- > 0;) {
			struct part *part = &all->parts[i];

			if ((part->movable || !is_cpu) &&
			    !switch_part(part, false) && restore_part(part))
				group = (struct group){ .parts = part, .nr = 1 };
		}
	}
	if (what && (!group.nr || (whole_node && others < 1)))
		skip(whole_node ? "needs two nodes with %s, all of one movable, at most %d" :
		     "needs two %s in a node, one of them movable",
		     is_cpu ? "CPUs" : "memory blocks", MAX_GROUP);
}

static const char *targets_file(int node)
{
	return name(NODES "node%d/demotion_targets", ids[node]);
}

static uint64_t nearest(int node, uint64_t from)
{
	char *at = get(name(NODES "node%d/%s", ids[node], "distance"));
	uint64_t found = 0;
	long distance, min = 1000;
	int n;

	for (n = 0; n < nr_nodes; n++) {
		distance = strtol(at, &at, 10);
		if (!(from >> n & 1) || distance > min)
			continue;
		found = 1ULL << n | (distance == min ? found : 0);
		min = distance;
	}
	return found;
}

/* The nodes of the next tier: the higher the number, the slower the memory. */
static uint64_t lower_tier(int node)
{
	bool found = false;
	uint64_t nodes;
	int id;

	for (id = 0; id < 256; id++) {
		nodes = get_nodes(name(TIERS "memory_tier%d/nodelist", id));
		if (nodes && found)
			return nodes;
		found |= nodes >> node & 1;
	}
	return 0;
}

/*
 * A model of what the kernel builds: the nearest nodes, with memory tiers those
 * of the next one. Kernels without start from the nodes with CPUs, go on from
 * the targets of those, and never lead back; they may have room for one target
 * only, so any of several that are equally near will do.
 */
static void model_targets(uint64_t *targets)
{
	uint64_t from = get_nodes(NODES "has_memory"), pass = from, next, seen;
	bool tiers = !access(TIERS, F_OK);
	int node;

	if (!tiers)
		pass = get_nodes(NODES "has_cpu");
	for (; pass; pass = next) {
		next = 0;
		from &= ~pass;
		for (node = 0; node < nr_nodes; node++) {
			if (!(pass >> node & 1))
				continue;
			targets[node] = nearest(node, tiers ? lower_tier(node) : from);
			if (tiers)
				continue;
			seen = targets[node] & get_nodes(targets_file(node));
			targets[node] = seen ?: targets[node];
			from &= ~targets[node];
			next |= targets[node];
		}
	}
}

static bool should_be_open(int policy)
{
	return policy == AUTO ? count_memory_nodes() > 1 : policy == ALWAYS;
}

static void expect_state(int policy)
{
	uint64_t memory = get_nodes(NODES "has_memory"), targets[64] = {};
	bool open = should_be_open(policy);
	const char *file;
	int node;

	if (strcmp(get(POLICY), shown[policy]))
		fail("policy is %s, reads %s", policies[policy], get(POLICY));
	if (strcmp(get(GATE_OPEN), open ? "1\n" : "0\n"))
		fail("policy %s, open is %s", policies[policy], get(GATE_OPEN));
	if (open)
		model_targets(targets);
	for (node = 0; node < nr_nodes; node++) {
		/* One without memory is not shown to have any. */
		targets[node] &= memory >> node & 1 ? ~0ULL : 0;
		file = targets_file(node);
		if (get_nodes(file) != targets[node] ||
		    (!targets[node] && strcmp(get(file), "\n")))
			fail("policy %s, targets of node %d, expected %#llx: %s",
			     policies[policy], ids[node],
			     (unsigned long long)targets[node], get(file));
	}
}

/* As echo(1) and as printf(1) write it, in turn. */
static void set_policy(int policy)
{
	static bool newline;

	newline = !newline;
	if (put(POLICY, name("%s%s", policies[policy], newline ? "\n" : "")))
		fail("%s is refused\n", policies[policy]);
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
static void expect_event(struct part *part, bool on, int error, long rebuilds)
{
	int ret, tries = 0;
	long before;

	do {
		before = count_rebuilds();
		ret = switch_part(part, on);
	} while ((ret == -EBUSY || ret == -EAGAIN || ret == -EINTR) &&
		 ++tries < 20 && !usleep(200000));
	if (ret != error)
		fail("%d to %s: %s\n", on, part_file(part), strerror(-ret));
	expect_rebuilds(before, rebuilds, part_file(part));
}

/* Each of the group costs @each, the last to go and first to come @edge. */
static void expect_group(bool on, long each, long edge)
{
	int i, edge_at = on ? 0 : group.nr - 1;

	for (i = 0; i < group.nr; i++)
		expect_event(&group.parts[i], on, 0, i == edge_at ? edge : each);
}

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

static void test_bad_policy(void)
{
	static const char * const bad[] = {
		"\n", " auto", "auto ", "AUTO", "aut", "autox", "auto\nnever",
		"auto\n\n", "auto never", "[auto]", "auto\xff", "1", "%s",
	};
	static char text[5000] = "auto";	/* more than sysfs takes at once */
	long before = count_rebuilds();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		if (put(POLICY, bad[i]) != -EINVAL)
			fail("bad policy %zu is not refused\n", i);
	if (put_bytes(POLICY, "\0", 1) != -EINVAL ||
	    put_bytes(POLICY, "auto\0", 5) != -EINVAL ||
	    put_bytes(POLICY, "auto\0never", 10) != -EINVAL ||
	    put_bytes(POLICY, text, sizeof(text)) != -EINVAL)
		fail("a policy with NUL is not refused\n");
	memset(text + 4, '\n', sizeof(text) - 4);
	if (put_bytes(POLICY, text, sizeof(text)) != -EINVAL)
		fail("a long policy is not refused\n");
	/* sysfs answers this one itself. */
	if (put(POLICY, ""))
		fail("a write of nothing is an error\n");
	expect_rebuilds(before, 0, "bad policies");
	expect_state(policy);
}

/* From each to each: only what opens the gate rebuilds. */
static void test_policy_writes(void)
{
	int from, to;

	for (from = 0; from < NR_POLICIES; from++) {
		for (to = 0; to < NR_POLICIES; to++) {
			set_policy(from);
			expect_set_policy(to, !should_be_open(from) && should_be_open(to));
		}
	}
}

/*
 * The gate must not believe that the targets fit because they did before it
 * was closed, or be surprised by what 'always' kept current.
 */
static void test_other_policy(void)
{
	int nodes = count_memory_nodes();
	bool two = nodes > 1, still_two = nodes - !group.parts->is_cpu > 1;
	int other, always;

	for (other = ALWAYS; other <= NEVER; other++) {
		always = other == ALWAYS;

		/* Away under the other policy, back under auto ... */
		set_policy(other);
		expect_group(false, always, always);
		expect_set_policy(AUTO, still_two && !always);
		expect_group(true, 0, two);
		expect_state(AUTO);

		/* ... and the other way round. */
		expect_group(false, 0, still_two);
		expect_set_policy(other, !still_two && always);
		expect_group(true, always, always);
		expect_set_policy(AUTO, two && !always);
	}
}

static void test_cycles(void)
{
	int i;

	for (i = 0; i < 200; i++)
		expect_event(group.parts, i & 1, 0, 0);
}

static int full;		/* the node that is filled */
static char *memory;
static long size, used;

static long count_demoted(void)
{
	return number_in("/proc/vmstat", "pgdemote_kswapd ");
}

static bool kswapd_gave_up(void)
{
	const char *at, *key = name("Node %d,", ids[full]);

	at = strstr(get("/proc/zoneinfo"), key);
	at = at ? strstr(at, "node_unreclaimable:") : NULL;
	return at && atoi(strchr(at, ' ')) == 1;
}

/* At most @bytes, in steps of @step, until kswapd demotes or has given up. */
static void fill(long bytes, long step)
{
	long before = count_demoted(), end = used + bytes;

	while (used < end && used + step <= size &&
	       count_demoted() == before && !kswapd_gave_up()) {
		memset(memory + used, 1, step);
		used += step;
		/* Leave kswapd its share of the CPU. */
		usleep(20000);
	}
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

	if (count_demoted() < 0 || number_in("/proc/meminfo", "SwapFree:") > 0)
		skip("needs pgdemote_kswapd in /proc/vmstat, and no swap");
	while (full < nr_nodes && !get_nodes(targets_file(full)))
		full++;
	if (full == nr_nodes)
		skip("needs a node that has a demotion target");
	/* Else a full node is out of memory for all that can't be moved. */
	if (!(others & ~(1ULL << full)))
		skip("needs another node that is not all ZONE_MOVABLE");
	size = node_memory(full, "MemFree:") / 1024 * MIB + 128 * MIB;
	room = number_in("/proc/meminfo", "MemFree:") / 1024 * MIB - size;
	id = ids[full];
	if (size > 8192 * MIB || room < 128 * MIB)
		skip("node %d has too much free memory, or others too little", id);

	mask[id / (8 * sizeof(long))] = 1UL << id % (8 * sizeof(long));
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED || put(DEMOTION, "1") ||
	    syscall(SYS_mbind, memory, size, MPOL_PREFERRED_MANY, mask, MAX_ID, 0))
		fail("can't prepare to fill node %d\n", id);
	madvise(memory, size, MADV_NOHUGEPAGE);
}

static void test_pages_are_demoted(void)
{
	long before = count_demoted();

	start_to_fill();
	fill(size - 160 * MIB, size - 160 * MIB);
	fill(size, MIB / 4);
	if (count_demoted() == before)
		fail("gate open, %ld MiB, nothing is demoted\n", used / MIB);

	set_policy(NEVER);
	/* What was isolated before may still be on its way. */
	do {
		before = count_demoted();
		sleep(3);
	} while (count_demoted() != before);
	fill(32 * MIB, MIB / 4);
	if (count_demoted() != before)
		fail("gate closed, pages are demoted\n");
}

/* A kswapd that gave up while there were no targets has to try again. */
static void test_demotion_comes_back(void)
{
	long before;

	start_to_fill();
	set_policy(NEVER);
	fill(size - 128 * MIB, size - 128 * MIB);
	/* It takes 16 failures: each time that it is woken is one. */
	fill(32 * MIB, MIB / 8);
	if (!kswapd_gave_up())
		skip("needs a kswapd that gives up, with a full node");
	set_policy(AUTO);
	before = count_demoted();
	fill(64 * MIB, MIB / 4);
	if (count_demoted() == before)
		fail("gate open again, kswapd %s, nothing is demoted\n",
		     kswapd_gave_up() ? "gave up" : "tries");
}

/* Of a node, the last CPU or memory that goes, and the first that comes. */
static void test_events(void)
{
	bool always = policy == ALWAYS, open = should_be_open(policy);
	bool one_left = whole_node && !group.parts->is_cpu &&
			count_memory_nodes() == 2;

	expect_group(false, always, always || (whole_node && open && !one_left));
	expect_state(policy);
	expect_group(true, always, always || (whole_node && open));
	expect_state(policy);
}

/*
 * Kernels without memory tiers disable the targets before a node's last block
 * goes, and must enable them when it stays.
 */
static void test_cancelled(void)
{
	bool disabled = whole_node && should_be_open(policy) && access(TIERS, F_OK);
	int i;

	if (put(INJECT, "-0"))
		skip("needs " INJECT ", and that to take a negative number");
	for (i = group.nr; --i;)
		expect_event(&group.parts[i], false, 0, policy == ALWAYS);
	if (put(INJECT, name("%d", -ENOMEM)))
		fail("can't inject an error\n");
	expect_event(group.parts, false, -ENOMEM, policy == ALWAYS || disabled);
	expect_state(policy);
}

/* With %s, once for each policy. Last, what leaves memory in another state. */
static const struct test {
	const char *name;
	void (*run)(void);
	int takes;
} tests[] = {
	{ "policy.%s.files", test_events },
	{ "policy.%s.cpu_events", test_events, A_CPU },
	{ "policy.%s.block_events", test_events, A_BLOCK },
	{ "policy.%s.node_cpu_events", test_events, NODE_CPUS },
	{ "policy.%s.node_memory_events", test_events, NODE_BLOCKS },
	{ "policy.%s.cancelled_offline", test_cancelled, A_BLOCK },
	{ "policy.%s.cancelled_offline_of_a_node", test_cancelled, NODE_BLOCKS },
	{ "demotion_gate.modes", test_modes },
	{ "demotion_gate.bad_policy_is_refused", test_bad_policy },
	{ "demotion_gate.policy_writes", test_policy_writes },
	{ "demotion_gate.cpus_leave_under_another_policy", test_other_policy, NODE_CPUS },
	{ "demotion_gate.memory_leaves_under_another_policy", test_other_policy, NODE_BLOCKS },
	{ "demotion_gate.hundred_cpu_cycles_rebuild_nothing", test_cycles, A_CPU },
	{ "demotion_gate.hundred_block_cycles_rebuild_nothing", test_cycles, A_BLOCK },
	{ "demotion_gate.pages_are_demoted", test_pages_are_demoted },
	{ "demotion_gate.demotion_comes_back", test_demotion_comes_back },
};

static bool restore(void)
{
	bool ok = true;
	int i;

	/* First, or no block would go offline. Neither file need be there. */
	put(INJECT, saved_inject);
	put(DEMOTION, saved_demotion);
	for (i = 0; i < nr_parts; i++)
		ok &= restore_part(&shared->parts[i]);
	ok &= !put(POLICY, policies[saved_policy]);
	if (!ok)
		ksft_print_msg("policy, CPUs or blocks are not as they were\n");
	return ok;
}

static void run(const struct test *test)
{
	pid_t child, parent = getpid();
	sigset_t signals;
	int status, sig;
	char title[80];
	bool ok;

	/* Blocked, so that nothing interrupts what puts things back. */
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
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* If a case fills the machine after all: it and no other. */
		if (getppid() != parent || put("/proc/self/oom_score_adj", "1000"))
			exit(KSFT_FAIL);
		choose_group(test->takes);
		set_policy(policy);
		test->run();
		exit(KSFT_PASS);
	}
	if (child < 0)
		ksft_exit_fail_msg("fork: %s\n", strerror(errno));
	do {
		sigwait(&signals, &sig);
		if (sig != SIGCHLD)
			kill(child, SIGKILL);
	} while (waitpid(child, &status, sig == SIGCHLD ? WNOHANG : 0) != child);
	ok = restore();
	if (sig != SIGCHLD)
		ksft_exit_fail_msg("%s\n", strsignal(sig));
	if (WIFSIGNALED(status))
		ksft_print_msg("%s\n", strsignal(WTERMSIG(status)));
	if (ok && WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
		ksft_test_result_skip("%s: %s\n", title, shared->why);
	else
		ksft_test_result(ok && !status, "%s\n", title);
}

/* Does nothing: that a signal arrives has a write return. */
static void on_alarm(int unused)
{
}

int main(void)
{
	int i, id, plan = 0;

	setlinebuf(stdout);
	signal(SIGALRM, on_alarm);
	ksft_print_header();
	if (geteuid() || access(POLICY, F_OK) || access(REBUILDS, F_OK))
		ksft_exit_skip("needs root, " POLICY ", " REBUILDS "\n");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		ksft_exit_fail_msg("no memory\n");
	for (i = 0; i < NR_POLICIES; i++)
		if (!strcmp(get(POLICY), shown[i]))
			saved_policy = i;
	snprintf(saved_demotion, sizeof(saved_demotion), "%s", get(DEMOTION));
	snprintf(saved_inject, sizeof(saved_inject), "%s", get(INJECT));
	for (id = 0; id < MAX_ID; id++) {
		if (access(name(NODES "node%d", id), F_OK))
			continue;
		if (nr_nodes == ARRAY_SIZE(ids))
			ksft_exit_skip("knows no more than 64 nodes\n");
		ids[nr_nodes] = id;
		find_parts(nr_nodes, false);
		find_parts(nr_nodes++, true);
	}

	for (i = 0; i < (int)ARRAY_SIZE(tests); i++)
		plan += strchr(tests[i].name, '%') ? NR_POLICIES : 1;
	ksft_set_plan(plan);
	for (i = 0; i < (int)ARRAY_SIZE(tests); i++) {
		policy = 0;
		do {
			run(&tests[i]);
		} while (strchr(tests[i].name, '%') && ++policy < NR_POLICIES);
	}
	ksft_exit(!ksft_get_fail_cnt());
}
