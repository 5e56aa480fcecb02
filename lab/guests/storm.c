// SPDX-License-Identifier: GPL-2.0
/*
 * All that touches the demotion gate, at once and at random; and random input for its policy file.
 *
 * Every worker draws from a sequence of its own that comes from the seed: a seed repeats what each of
 * them does, though not how they interleave.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <getopt.h>
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
#include <time.h>
#include <unistd.h>

#define GATE		"/sys/kernel/mm/numa/demotion_gate/"
#define POLICY		GATE "policy"
#define GATE_OPEN	GATE "open"
#define TIERS		"/sys/devices/virtual/memory_tiering"
#define REBUILDS	"/sys/kernel/debug/demotion_gate/rebuilds"
#define CPUS		"/sys/devices/system/cpu"
#define MEMORY		"/sys/devices/system/memory"
#define NODES		"/sys/devices/system/node"
#define CGROUP		"/run/storm-cgroup"

#define MOST		4096		/* CPUs, or memory blocks */
#define WORKERS		16
#define ERRORS		134
#define RECLAIMED	(16ul << 20)
#define STUCK_SECONDS	90

static const char usage[] =
	"usage: storm [OPTION]... ROLE...   run a worker of each role at once, then put everything back\n"
	"       storm [OPTION]... fuzz      write random and almost valid words to the policy file\n"
	"Roles: policy, close, cpu, block, reclaim, read. `close` writes only what leaves the gate of a machine with\n"
	"one node closed.\n"
	"  --seconds S   how long (default 10)\n"
	"  --tries N     words to write (default 1000)\n"
	"  --seed N      where the random sequences start (default 1)\n"
	"  --eager       no pauses\n"
	"  --lock DIR    open memory blocks' files only while this directory is made by us (default: at any time)\n"
	"Prints `name value` lines; exits with 1 if a worker found a fault, did not end, or could not put back.\n";

enum policy { AUTO, NEVER, ALWAYS, NR_POLICIES };

static const char * const words[] = { [AUTO] = "auto", [NEVER] = "never", [ALWAYS] = "always" };
static const char * const marked[] = {
	[AUTO] = "[auto] always never\n", [NEVER] = "auto always [never]\n", [ALWAYS] = "auto [always] never\n",
};

enum count {
	DONE,			/* rounds of a worker; its writes, for a policy writer */
	OPENING,		/* writes of a policy that may open the gate */
	CPU_OFF, CPU_ON, BLOCK_OFF, BLOCK_ON,
	REFUSED,		/* what may or may not have sent a cancelled event */
	VANISHED,		/* blocks that were unplugged while offline */
	FAULTS,
	NR_COUNTS
};

static const char * const count_names[] = {
	"done", "opening", "cpu_off", "cpu_on", "block_off", "block_on", "refused", "vanished", "faults",
};

struct worker {
	char role[16];
	pid_t pid;
	unsigned long counts[NR_COUNTS];
	unsigned long errors[ERRORS];
};

static struct {
	volatile bool stop;
	struct worker workers[WORKERS];
} *shared;

static struct worker *self;
static uint64_t state;
static volatile sig_atomic_t stopped;
static const char *block_lock;
static bool eager;

/* xorshift64*: small, and the same everywhere. */
static uint32_t draw(uint32_t below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (state * 0x2545f4914f6cdd1dull >> 32) % below;
}

/* Neighbouring seeds must not give similar sequences, and zero would stay zero. */
static void seed_with(uint64_t seed, uint64_t number)
{
	state = (seed * 0x9e3779b97f4a7c15ull) ^ ((number + 1) * 0xbf58476d1ce4e5b9ull);
	if (!state)
		state = 1;
	for (int i = 0; i < 16; i++)
		draw(2);
}

static __attribute__((format(printf, 1, 2))) void fault(const char *format, ...)
{
	va_list args;

	/* The first ones tell what is wrong; the others only how often. */
	if (self->counts[FAULTS]++ < 5) {
		char text[512];

		va_start(args, format);
		vsnprintf(text, sizeof(text), format, args);
		va_end(args);
		dprintf(STDOUT_FILENO, "fault %s: %s\n", self->role, text);
	}
}

static void rest(unsigned int milliseconds)
{
	if (milliseconds && !eager)
		usleep(1000 * draw(milliseconds));
}

/* Reads once, whole: what is longer than the buffer is of no use here. */
static ssize_t get(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;
	int error;

	text[0] = 0;
	if (fd < 0)
		return -errno;
	got = read(fd, text, size - 1);
	error = errno;
	close(fd);
	if (got < 0)
		return -error;
	text[got] = 0;
	return got;
}

/* What a write returned, or -errno. Errors are counted by number. */
static ssize_t put(const char *path, const void *bytes, size_t length)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t put = fd < 0 ? -errno : write(fd, bytes, length);

	if (fd >= 0 && put < 0)
		put = -errno;
	if (fd >= 0)
		close(fd);
	if (put < 0 && -put < ERRORS)
		self->errors[-put]++;
	return put;
}

static int put_word(const char *path, const char *word)
{
	ssize_t ret = put(path, word, strlen(word));

	return ret < 0 ? ret : 0;
}

static long get_number(const char *path)
{
	char text[32];

	return get(path, text, sizeof(text)) > 0 ? strtol(text, NULL, 10) : -1;
}

/* Policy */

static void write_policies(int below)
{
	while (!shared->stop) {
		int which = draw(below);
		char text[16];
		size_t length = snprintf(text, sizeof(text), "%s%s", words[which], draw(2) ? "\n" : "");
		ssize_t ret = put(POLICY, text, length);

		if (ret != (ssize_t)length)
			fault("writing %s to the policy returned %zd", words[which], ret);
		self->counts[DONE]++;
		self->counts[OPENING] += which != NEVER;
		rest(30);
	}
}

static void be_policy(void)
{
	write_policies(NR_POLICIES);
}

static void be_close(void)
{
	write_policies(ALWAYS);
}

/* CPUs */

static bool switch_cpu(int cpu, bool on)
{
	char path[80];
	int ret;

	snprintf(path, sizeof(path), CPUS "/cpu%d/online", cpu);
	ret = put_word(path, on ? "1" : "0");
	if (ret) {
		self->counts[REFUSED]++;
		if (ret != -EBUSY)
			fault("CPU %d, %s: %s", cpu, on ? "online" : "offline", strerror(-ret));
		return false;
	}
	self->counts[on ? CPU_ON : CPU_OFF]++;
	return true;
}

static void be_cpu(void)
{
	int cpus = sysconf(_SC_NPROCESSORS_CONF);
	bool off[MOST] = { };

	if (cpus < 2 || cpus > MOST)
		return fault("%d CPUs", cpus);
	while (!shared->stop) {
		int cpu = 1 + draw(cpus - 1);

		if (switch_cpu(cpu, off[cpu]))
			off[cpu] = !off[cpu];
		self->counts[DONE]++;
		rest(50);
	}
	for (int cpu = 1; cpu < cpus; cpu++) {
		for (int try = 0; off[cpu] && try < 50; try++) {
			off[cpu] = !switch_cpu(cpu, true);
			if (off[cpu])
				usleep(100000);
		}
		if (off[cpu])
			fault("CPU %d stays offline", cpu);
	}
}

/* Memory blocks */

static int find_block(void)
{
	static int blocks[MOST];
	DIR *dir = opendir(MEMORY);
	struct dirent *entry;
	int found = 0;

	while (dir && found < MOST && (entry = readdir(dir)))
		if (!strncmp(entry->d_name, "memory", 6) && isdigit(entry->d_name[6]))
			blocks[found++] = atoi(entry->d_name + 6);
	if (dir)
		closedir(dir);
	return found ? blocks[draw(found)] : -1;
}

static bool is_gone(int error)
{
	return error == -ENOENT || error == -ENODEV || error == -ENXIO;
}

/*
 * Linux 6.12 removes a block's files with mem_hotplug_lock held, and a write to its state takes that
 * lock. device_hotplug_lock keeps the two apart, but the write only tries for it, which lockdep does
 * not count: it reports a deadlock if a file is open while it is removed, and stops looking.
 */
static void lock_blocks(void)
{
	while (block_lock && mkdir(block_lock, 0700))
		usleep(5000);
}

static void unlock_blocks(void)
{
	if (block_lock)
		rmdir(block_lock);
}

static int offline_block(const char *path)
{
	int ret;

	/* Where pages can't be moved, the kernel tries until a signal comes. */
	alarm(5);
	ret = put_word(path, "offline");
	alarm(0);
	return ret;
}

/* One block at a time: what it loses of the memory stays bounded. */
static void cycle_block(int block)
{
	char path[80], zone[64];
	bool can_go;
	int ret = 0;

	lock_blocks();
	/* A block in several zones, or none, can't go. */
	snprintf(path, sizeof(path), MEMORY "/memory%d/valid_zones", block);
	can_go = get(path, zone, sizeof(zone)) > 0;
	zone[strcspn(zone, "\n")] = 0;
	can_go = can_go && !strchr(zone, ' ') && strcmp(zone, "none");
	snprintf(path, sizeof(path), MEMORY "/memory%d/state", block);
	if (can_go)
		ret = offline_block(path);
	unlock_blocks();
	if (!can_go)
		return;
	if (ret) {
		self->counts[REFUSED] += !is_gone(ret);
		if (ret != -EBUSY && ret != -EAGAIN && ret != -EINTR && ret != -EINVAL && !is_gone(ret))
			fault("block %d, offline: %s", block, strerror(-ret));
		return;
	}
	self->counts[BLOCK_OFF]++;
	rest(200);
	for (int try = 0; try < 100; try++) {
		lock_blocks();
		ret = put_word(path, strcmp(zone, "Movable") ? "online_kernel" : "online_movable");
		unlock_blocks();
		if (!ret) {
			self->counts[BLOCK_ON]++;
			return;
		}
		if (is_gone(ret)) {
			self->counts[VANISHED]++;
			return;
		}
		self->counts[REFUSED]++;
		usleep(100000);
	}
	fault("block %d stays offline: %s", block, strerror(-ret));
}

static void be_block(void)
{
	while (!shared->stop) {
		cycle_block(find_block());
		self->counts[DONE]++;
		rest(100);
	}
}

/* Reclaim */

/*
 * A cgroup is told to give memory back, so nothing else can run out of it. To fill a node instead, for
 * kernels whose cgroups can't be told, would leave no room for what is to move when a block goes.
 */
static bool enter_cgroup(void)
{
	mkdir(CGROUP, 0755);
	if (mount("cgroup", CGROUP, "cgroup2", 0, NULL) && errno != EBUSY)
		return false;
	put_word(CGROUP "/cgroup.subtree_control", "+memory");
	mkdir(CGROUP "/storm", 0755);
	return !access(CGROUP "/storm/memory.reclaim", W_OK) && !put_word(CGROUP "/storm/cgroup.procs", "0");
}

static void be_reclaim(void)
{
	unsigned long node0 = 1;

	if (!enter_cgroup())
		return fault("no " CGROUP "/storm/memory.reclaim to write to");
	put_word("/proc/self/oom_score_adj", "1000");
	while (!shared->stop) {
		char *memory = mmap(NULL, RECLAIMED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		char text[32];

		if (memory == MAP_FAILED) {
			usleep(100000);
			continue;
		}
		syscall(SYS_mbind, memory, RECLAIMED, MPOL_PREFERRED, &node0, 8 * sizeof(node0), 0);
		memset(memory, 1, RECLAIMED);
		madvise(memory, RECLAIMED, MADV_COLD);
		snprintf(text, sizeof(text), "%lu", RECLAIMED / 4);
		/* Most often it can't give back all of it: with the gate closed, nothing. */
		put_word(CGROUP "/storm/memory.reclaim", text);
		self->counts[DONE]++;
		munmap(memory, RECLAIMED);
		rest(50);
	}
}

/* Readers of every file of ours */

static void check_policy(void)
{
	char text[64];

	get(POLICY, text, sizeof(text));
	for (int i = 0; i < NR_POLICIES; i++)
		if (!strcmp(text, marked[i]))
			return;
	fault("policy reads '%s'", text);
}

static void check_open(void)
{
	char text[64];

	get(GATE_OPEN, text, sizeof(text));
	if (strcmp(text, "0\n") && strcmp(text, "1\n"))
		fault("open reads '%s'", text);
}

static void check_tiers(void)
{
	glob_t found;

	if (glob(TIERS "/memory_tier*/nodelist", 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		char text[256];
		ssize_t got = get(found.gl_pathv[i], text, sizeof(text));

		if (!is_gone(got) && (got < 1 || text[got - 1] != '\n'))
			fault("%s reads '%s' (%zd)", found.gl_pathv[i], text, got);
	}
	globfree(&found);
}

static void check_counter(const char *path, long *last)
{
	long now = get_number(path);

	if (now < *last)
		fault("%s reads %ld after %ld", path, now, *last);
	*last = now;
}

static void check_targets(void)
{
	DIR *dir = opendir(NODES);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char path[320], text[256];
		ssize_t got;

		if (strncmp(entry->d_name, "node", 4) || !isdigit(entry->d_name[4]))
			continue;
		snprintf(path, sizeof(path), NODES "/%s/demotion_targets", entry->d_name);
		got = get(path, text, sizeof(text));
		if (is_gone(got))
			continue;
		if (got < 1 || text[got - 1] != '\n' || strspn(text, "0123456789,-") != (size_t)got - 1)
			fault("%s reads '%s' (%zd)", path, text, got);
	}
	if (dir)
		closedir(dir);
}

static void be_reader(void)
{
	long rebuilds = 0;

	while (!shared->stop) {
		check_policy();
		check_open();
		check_counter(REBUILDS, &rebuilds);
		check_targets();
		check_tiers();
		self->counts[DONE]++;
		rest(5);
	}
}

/* Input for the policy file */

static size_t random_bytes(char *to)
{
	size_t length = draw(8) ? draw(24) : draw(6000);

	for (size_t i = 0; i < length; i++)
		to[i] = draw(256);
	return length;
}

static size_t random_word(char *to)
{
	return sprintf(to, "%s%s", words[draw(NR_POLICIES)], draw(2) ? "\n" : "");
}

static size_t insert(char *text, size_t length, size_t at, char byte)
{
	memmove(text + at + 1, text + at, length - at);
	text[at] = byte;
	return length + 1;
}

static size_t mutate(char *text, size_t length)
{
	static const char between[] = "\n\0 \t\r,=[]/x\xff";
	size_t at = length ? draw(length) : 0, other;
	char more[16];

	switch (draw(9)) {
	case 0:
		if (length)
			text[at] ^= 1 << draw(8);
		return length;
	case 1:
		if (length)
			text[at] = toupper((unsigned char)text[at]);
		return length;
	case 2:
		if (!length)
			return 0;
		memmove(text + at, text + at + 1, length - at - 1);
		return length - 1;
	case 3:
		return at;	/* a prefix */
	case 4:
		return insert(text, length, draw(length + 1), between[draw(sizeof(between))]);
	case 5:
		return insert(text, length, length, between[draw(sizeof(between))]);
	case 6:
		return insert(text, length, draw(length + 1), draw(256));
	case 7:
		if (length) {
			other = draw(length);
			more[0] = text[at];
			text[at] = text[other];
			text[other] = more[0];
		}
		return length;
	default:
		other = random_word(more);
		memcpy(text + length, more, other);
		return length + other;
	}
}

/* The documentation's word on it: one of three, and at most one newline. */
static int meaning(const char *text, size_t length)
{
	if (length && text[length - 1] == '\n')
		length--;
	for (int i = 0; i < NR_POLICIES; i++)
		if (length == strlen(words[i]) && !memcmp(text, words[i], length))
			return i;
	return -1;
}

static int current_policy(void)
{
	char text[64];

	get(POLICY, text, sizeof(text));
	for (int i = 0; i < NR_POLICIES; i++)
		if (!strcmp(text, marked[i]))
			return i;
	return -1;
}

static void show(const char *text, size_t length, char *to)
{
	for (size_t i = 0; i < length && i < 40; i++)
		to += sprintf(to, isprint((unsigned char)text[i]) ? "%c" : "\\x%02x", (unsigned char)text[i]);
	*to = 0;
}

static int fuzz(long tries)
{
	static char text[8192];
	unsigned long taken = 0, refused = 0, opened = 0;
	long rebuilds = get_number(REBUILDS);
	int policy = current_policy(), start = policy;
	long open = get_number(GATE_OPEN);

	if (policy < 0 || rebuilds < 0)
		return fault("no gate here"), 1;
	for (long i = 0; i < tries; i++) {
		size_t length = draw(4) ? random_word(text) : random_bytes(text);
		int means, now;
		ssize_t ret, due;
		char shown[200];

		for (int changes = draw(4); changes--;)
			length = mutate(text, length);
		means = meaning(text, length);
		ret = put(POLICY, text, length);
		now = current_policy();
		/* sysfs does not pass on an empty write. */
		due = means >= 0 || !length ? (ssize_t)length : -EINVAL;
		if (means >= 0) {
			long after = get_number(GATE_OPEN);

			policy = means;
			opened += after > open;
			open = after;
			taken++;
		} else {
			refused++;
		}
		if (ret == due && now == policy)
			continue;
		show(text, length, shown);
		fault("'%s', %zu bytes: returned %zd, expected %zd; policy is %s, expected %s", shown, length, ret, due,
		      now < 0 ? "unreadable" : words[now], words[policy]);
		policy = now < 0 ? policy : now;
	}
	/* Nothing but a gate that opens rebuilds. */
	if (get_number(REBUILDS) - rebuilds != (long)opened)
		fault("rebuilds went from %ld to %ld, and the gate opened %lu times", rebuilds, get_number(REBUILDS), opened);
	put_word(POLICY, words[start]);
	printf("taken %lu\nrefused %lu\nopened %lu\nfaults %lu\n", taken, refused, opened, self->counts[FAULTS]);
	return self->counts[FAULTS] || !taken || !refused;
}

/* All at once */

static const struct {
	const char *name;
	void (*work)(void);
} roles[] = {
	{ "policy", be_policy }, { "close", be_close }, { "cpu", be_cpu }, { "block", be_block },
	{ "reclaim", be_reclaim }, { "read", be_reader },
};

static void on_signal(int signal)
{
	/* An alarm is only to end what a worker waits for. */
	if (signal != SIGALRM)
		stopped = 1;
}

static void start(int number, int role, uint64_t seed)
{
	self = &shared->workers[number];
	snprintf(self->role, sizeof(self->role), "%s", roles[role].name);
	self->pid = fork();
	if (self->pid < 0) {
		perror("storm: fork");
		exit(2);
	}
	if (self->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Only the parent stops: a worker puts back first. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	seed_with(seed, number);
	roles[role].work();
	_exit(0);
}

/* What a worker that does not end waits for. */
static void show_stuck(const struct worker *worker)
{
	static char text[8192];
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stack", worker->pid);
	if (get(path, text, sizeof(text)) <= 0) {
		snprintf(path, sizeof(path), "/proc/%d/wchan", worker->pid);
		get(path, text, sizeof(text));
	}
	printf("stuck %s %s\n", worker->role, text);
}

static int end_all(int nr)
{
	int bad = 0;

	shared->stop = true;
	for (int left = nr, tries = 0; left && tries < 10 * STUCK_SECONDS; tries++) {
		int status;
		pid_t pid;

		while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
			for (int i = 0; i < nr; i++) {
				if (shared->workers[i].pid != pid)
					continue;
				shared->workers[i].pid = 0;
				if (status) {
					printf("died %s %#x\n", shared->workers[i].role, status);
					bad = 1;
				}
			}
			left--;
		}
		if (left)
			usleep(100000);
	}
	for (int i = 0; i < nr; i++) {
		if (!shared->workers[i].pid)
			continue;
		show_stuck(&shared->workers[i]);
		bad = 1;
	}
	return bad;
}

/* The sums over all workers; what they are of is in the name. */
static unsigned long report(int nr)
{
	unsigned long sums[NR_COUNTS] = { };

	for (int i = 0; i < nr; i++) {
		const struct worker *worker = &shared->workers[i];

		printf("rounds.%s.%d %lu\n", worker->role, i, worker->counts[DONE]);
		for (int count = 0; count < NR_COUNTS; count++)
			sums[count] += worker->counts[count];
		for (int error = 0; error < ERRORS; error++)
			if (worker->errors[error])
				printf("errors.%s.%s %lu\n", worker->role, strerrorname_np(error), worker->errors[error]);
	}
	for (int count = OPENING; count < NR_COUNTS; count++)
		printf("%s %lu\n", count_names[count], sums[count]);
	return sums[FAULTS];
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static int role_of(const char *name)
{
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (!strcmp(name, roles[i].name))
			return i;
	return -1;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 's' }, { "tries", required_argument, NULL, 't' },
		{ "seed", required_argument, NULL, 'n' },    { "help", no_argument, NULL, 'h' },
		{ "lock", required_argument, NULL, 'l' },    { "eager", no_argument, NULL, 'e' },
		{ }
	};
	struct sigaction action = { .sa_handler = on_signal };
	unsigned long long seed = 1;
	double seconds = 10;
	long tries = 1000;
	int option, nr, bad;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's':
			seconds = atof(optarg);
			break;
		case 't':
			tries = atol(optarg);
			break;
		case 'l':
			block_lock = optarg;
			break;
		case 'e':
			eager = true;
			break;
		case 'n':
			seed = strtoull(optarg, NULL, 10);
			break;
		default:
			fputs(usage, option == 'h' ? stdout : stderr);
			return option == 'h' ? 0 : 2;
		}
	}
	nr = argc - optind;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (nr == 1 && !strcmp(argv[optind], "fuzz")) {
		self = &shared->workers[0];
		snprintf(self->role, sizeof(self->role), "fuzz");
		seed_with(seed, 0);
		return fuzz(tries);
	}
	for (int i = optind; i < argc; i++) {
		if (role_of(argv[i]) < 0) {
			fprintf(stderr, "storm: no role '%s'\n%s", argv[i], usage);
			return 2;
		}
	}
	if (!nr || nr > WORKERS) {
		fputs(usage, stderr);
		return 2;
	}

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	for (int i = 0; i < nr; i++)
		start(i, role_of(argv[optind + i]), seed);
	for (double end = now() + seconds; now() < end && !stopped;)
		usleep(100000);
	bad = end_all(nr);
	return report(nr) || bad;
}
