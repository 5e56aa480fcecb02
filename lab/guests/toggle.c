// SPDX-License-Identifier: GPL-2.0
/*
 * Takes CPUs or memory blocks offline and online again and times each write.
 *
 * It runs in the lab's guests and, by hand, on live machines. There it must leave the machine as it
 * found it, however it ends: every write that took something offline is remembered, and undone at exit.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CPUS	"/sys/devices/system/cpu"
#define MEMORY	"/sys/devices/system/memory"
#define MOST	65536

static const char usage[] =
	"usage: toggle [OPTION]... cpu|memory|smt\n"
	"Take CPUs or memory blocks offline and online again; print scenario,cycle,target,action,ns,result as CSV.\n"
	"  cpu      one CPU off and on, then the next\n"
	"  memory   one memory block off and on, then the next\n"
	"  smt      all CPUs but the first off, one after another, then all on again, as an SMT switch does\n"
	"  --cycles N     repeat N times (default 10, or without end if --seconds is given)\n"
	"  --seconds S    stop after S seconds\n"
	"  --cpus a,b     these CPUs (default: the last one; smt: all but the first)\n"
	"  --blocks a,b   these memory blocks (default: the last that goes off and on in a trial)\n"
	"  --count N      of the CPUs or blocks found by default, take N\n"
	"  --list         print what would be touched, touch nothing\n"
	"Everything is put back online at the end, on an error, and on SIGINT, SIGTERM and SIGHUP.\n";

struct target {
	int number;
	char path[80];		/* the file to write */
	const char *online;	/* what to write to bring it back as it was */
	bool off;
};

static struct target *targets;
static int nr_targets;
static bool is_memory;
static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	stop = signal;
}

static int read_line(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, buffer, size - 1);

	if (fd >= 0)
		close(fd);
	if (got < 0)
		return -1;
	buffer[got] = 0;
	buffer[strcspn(buffer, "\n")] = 0;
	return 0;
}

/* Writes once and says how long that took; returns 0 or an errno. */
static int timed_write(const char *path, const char *word, long long *ns)
{
	struct timespec before, after;
	int fd = open(path, O_WRONLY | O_CLOEXEC), error;

	*ns = 0;
	if (fd < 0)
		return errno;
	clock_gettime(CLOCK_MONOTONIC, &before);
	error = write(fd, word, strlen(word)) < 0 ? errno : 0;
	clock_gettime(CLOCK_MONOTONIC, &after);
	close(fd);
	*ns = (after.tv_sec - before.tv_sec) * 1000000000ll + after.tv_nsec - before.tv_nsec;
	return error;
}

/* The last online CPU must stay, whatever the user asked for. */
static bool is_last_cpu(void)
{
	char online[4096];

	return read_line(CPUS "/online", online, sizeof(online)) || !strpbrk(online, ",-");
}

static int switch_off(struct target *target, long long *ns)
{
	int error;

	*ns = 0;
	if (!is_memory && is_last_cpu())
		return EPERM;
	error = timed_write(target->path, is_memory ? "offline" : "0", ns);
	if (!error)
		target->off = true;
	return error;
}

static int switch_on(struct target *target, long long *ns)
{
	int error = timed_write(target->path, target->online, ns);

	if (!error)
		target->off = false;
	return error;
}

/* Runs at exit, and so on every path out but SIGKILL. */
static void restore(void)
{
	for (int i = 0; i < nr_targets; i++) {
		struct target *target = &targets[i];
		int error = 0;
		long long ns;

		/* A block may be busy for a moment, a write be interrupted by the signal that ends us. */
		for (int try = 0; target->off && try < 20; try++) {
			error = switch_on(target, &ns);
			if (error)
				usleep(100000);
		}
		if (target->off)
			fprintf(stderr, "toggle: STILL OFFLINE: %s (%s); write '%s' to it\n", target->path,
				strerror(error), target->online);
	}
}

static bool add_cpu(int number)
{
	struct target *target = &targets[nr_targets];
	char state[8];

	snprintf(target->path, sizeof(target->path), CPUS "/cpu%d/online", number);
	if (number == 0 || read_line(target->path, state, sizeof(state)) || strcmp(state, "1"))
		return false;
	target->number = number;
	target->online = "1";
	nr_targets++;
	return true;
}

/* A block is a candidate if it is online, removable and in one zone: its zone is then the only one it names. */
static bool add_block(int number)
{
	struct target *target = &targets[nr_targets];
	char path[80], text[256];

	snprintf(path, sizeof(path), MEMORY "/memory%d/removable", number);
	if (!read_line(path, text, sizeof(text)) && strcmp(text, "1"))
		return false;
	snprintf(path, sizeof(path), MEMORY "/memory%d/valid_zones", number);
	if (read_line(path, text, sizeof(text)) || !strcmp(text, "none") || strchr(text, ' '))
		return false;
	target->online = strcmp(text, "Movable") ? "online_kernel" : "online_movable";
	snprintf(target->path, sizeof(target->path), MEMORY "/memory%d/state", number);
	if (read_line(target->path, text, sizeof(text)) || strcmp(text, "online"))
		return false;
	target->number = number;
	nr_targets++;
	return true;
}

static bool add(int number)
{
	if (nr_targets == MOST)
		return false;
	for (int i = 0; i < nr_targets; i++)
		if (targets[i].number == number)
			return true;
	return is_memory ? add_block(number) : add_cpu(number);
}

/* What the user named must all be usable: toggling something else instead would be a false measurement. */
static void add_named(const char *list)
{
	for (const char *at = list; *at;) {
		char *end;
		long number = strtol(at, &end, 10);

		if (end == at || (*end && *end != ',') || number < 0 || number > 1000000) {
			fprintf(stderr, "toggle: '%s': expected numbers with commas between\n", list);
			exit(2);
		}
		if (!add(number)) {
			fprintf(stderr, "toggle: %s %ld can't be toggled: %s\n", is_memory ? "block" : "CPU", number,
				is_memory ? "it must be online, removable and in one zone" :
				"it must be online and not CPU 0");
			exit(2);
		}
		at = *end ? end + 1 : end;
	}
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Numbers of the folders cpuN or memoryN, ascending. */
static int find_numbers(int **numbers)
{
	const char *folder = is_memory ? MEMORY : CPUS, *word = is_memory ? "memory" : "cpu";
	size_t length = strlen(word);
	DIR *dir = opendir(folder);
	struct dirent *entry;
	int found = 0;

	*numbers = calloc(MOST, sizeof(int));
	if (!dir || !*numbers) {
		fprintf(stderr, "toggle: %s: %s\n", folder, strerror(errno));
		exit(1);
	}
	while (found < MOST && (entry = readdir(dir)))
		if (!strncmp(entry->d_name, word, length) && isdigit(entry->d_name[length]))
			(*numbers)[found++] = atoi(entry->d_name + length);
	closedir(dir);
	qsort(*numbers, found, sizeof(int), by_number);
	return found;
}

/* From the last one down: what is low in memory, and CPU 0, are the least likely to go. */
static void add_default(int most, bool trial)
{
	int *numbers, found = find_numbers(&numbers);

	while (found-- && nr_targets < most && !stop) {
		struct target *target = &targets[nr_targets];
		long long ns;

		if (!add(numbers[found]))
			continue;
		if (!trial)
			continue;
		if (switch_off(target, &ns) || switch_on(target, &ns)) {
			if (target->off)
				exit(1);	/* restore() tries again and reports */
			nr_targets--;
		}
	}
	free(numbers);
}

/* Not on a CPU that is about to go: being moved away would be part of the measured time. */
static void pin(void)
{
	cpu_set_t set;

	if (is_memory)
		return;
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void print_row(const char *scenario, long cycle, const struct target *target, const char *action,
		      long long ns, int error)
{
	const char *name = error ? strerrorname_np(error) : "ok";

	printf("%s,%ld,%d,%s,%lld,%s\n", scenario, cycle, target->number, action, ns, name ? name : "unknown");
}

struct row {
	long long ns;
	int error;
};

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "cycles", required_argument, NULL, 'c' }, { "seconds", required_argument, NULL, 's' },
		{ "cpus", required_argument, NULL, 'C' },   { "blocks", required_argument, NULL, 'b' },
		{ "count", required_argument, NULL, 'n' },  { "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },	    { }
	};
	const char *cpus = NULL, *blocks = NULL, *scenario;
	struct sigaction action = { .sa_handler = on_signal };
	long cycles = 0, count = 1;
	double seconds = 0;
	bool list = false, is_smt;
	struct timespec start;
	struct row *rows;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			cycles = atol(optarg);
			break;
		case 's':
			seconds = atof(optarg);
			break;
		case 'C':
			cpus = optarg;
			break;
		case 'b':
			blocks = optarg;
			break;
		case 'n':
			count = atol(optarg);
			break;
		case 'l':
			list = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	scenario = optind == argc - 1 ? argv[optind] : "";
	is_memory = !strcmp(scenario, "memory");
	is_smt = !strcmp(scenario, "smt");
	if ((!is_memory && !is_smt && strcmp(scenario, "cpu")) || cycles < 0 || seconds < 0 || count < 1 ||
	    (is_memory ? cpus : blocks)) {
		fputs(usage, stderr);
		return 2;
	}
	if (!cycles && !seconds)
		cycles = 10;

	targets = calloc(MOST + 1, sizeof(*targets));
	if (!targets)
		return 1;
	signal(SIGPIPE, SIG_IGN);	/* a reader that went away must not keep restore() from running */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	atexit(restore);
	pin();

	if (cpus || blocks)
		add_named(is_memory ? blocks : cpus);
	else
		add_default(is_smt ? MOST : list && is_memory ? MOST : count, is_memory && !list);
	if (list) {
		if (is_memory && !blocks)
			printf("of these, the first %ld that go off and on in a trial:\n", count);
		for (int i = 0; i < nr_targets; i++)
			printf("%s\n", targets[i].path);
		return 0;
	}
	if (!nr_targets && !stop) {
		fprintf(stderr, "toggle: nothing here can be taken offline (are you root?)\n");
		return 1;
	}
	rows = calloc(2 * nr_targets, sizeof(*rows));
	if (nr_targets && !rows)
		return 1;

	printf("scenario,cycle,target,action,ns,result\n");
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (long cycle = 0; !stop && (!cycles || cycle < cycles); cycle++) {
		struct timespec now;
		int done_off = 0, done_on = 0;

		clock_gettime(CLOCK_MONOTONIC, &now);
		if (seconds && now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9 >= seconds)
			break;
		/* Nothing is printed inside a cycle: the console's cost must not be in the times between writes. */
		for (int i = 0; i < nr_targets && !stop; i++) {
			rows[2 * i].error = switch_off(&targets[i], &rows[2 * i].ns);
			done_off = i + 1;
			if (!is_smt && !stop && targets[i].off)
				rows[2 * i + 1].error = switch_on(&targets[i], &rows[2 * i + 1].ns);
			else
				rows[2 * i + 1].error = -1;
			done_on = i + 1;
		}
		/* In ascending order, as the kernel brings them up. */
		for (int i = nr_targets; is_smt && i-- && !stop;)
			if (targets[i].off)
				rows[2 * i + 1].error = switch_on(&targets[i], &rows[2 * i + 1].ns);
		for (int i = 0; i < done_off; i++) {
			print_row(scenario, cycle, &targets[i], "off", rows[2 * i].ns, rows[2 * i].error);
			if (!is_smt && i < done_on && rows[2 * i + 1].error >= 0)
				print_row(scenario, cycle, &targets[i], "on", rows[2 * i + 1].ns, rows[2 * i + 1].error);
		}
		for (int i = done_off; is_smt && i--;)
			if (rows[2 * i + 1].error >= 0)
				print_row(scenario, cycle, &targets[i], "on", rows[2 * i + 1].ns, rows[2 * i + 1].error);
		if (fflush(stdout))
			return 1;
	}
	return stop ? 128 + stop : 0;
}
