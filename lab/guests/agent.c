// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's end of the command channel: a serial line that carries requests
 *
 *	VERB ID TIMEOUT-MS LENGTH CRC32\n  LENGTH bytes
 *
 * and, for each, one answer
 *
 *	ID STATUS LENGTH CRC32\n  LENGTH bytes
 *
 * Verbs: run (a shell script; the answer is what it printed), put and add (a path, a NUL, the file's
 * bytes: start a file, continue it), get (a path; the answer is its bytes), off.
 *
 * Lengths and checksums rather than end markers: a test's output may hold any byte, and a lost byte
 * must be an error here, not a wrong number in a report.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define SCRIPT	"/run/agent.script"
#define OUTPUT	"/run/agent.output"
#define LIMIT	(32u << 20)

/* Beside a script's own status, 0 to 255. */
#define TIMED_OUT	(-1)
#define HUNG		(-2)	/* it did not even die when killed */
#define FAILED		(-3)	/* the agent could not do it; the answer says why */

static int line;

static uint32_t crc32(const unsigned char *data, size_t length)
{
	uint32_t crc = ~0u;

	while (length--) {
		crc ^= *data++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

static void die(const char *what)
{
	fprintf(stderr, "agent: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void read_all(void *to, size_t length)
{
	for (char *at = to; length;) {
		ssize_t got = read(line, at, length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			die("read");
		at += got;
		length -= got;
	}
}

static int write_all(int fd, const void *from, size_t length)
{
	for (const char *at = from; length;) {
		ssize_t put = write(fd, at, length);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -1;
		at += put;
		length -= put;
	}
	return 0;
}

static void answer(unsigned long id, int status, const void *data, size_t length)
{
	char head[80];
	int size = snprintf(head, sizeof(head), "%lu %d %zu %u\n", id, status, length, crc32(data, length));

	if (write_all(line, head, size) || write_all(line, data, length))
		die("write");
}

static void answer_failed(unsigned long id, const char *what)
{
	char text[512];

	snprintf(text, sizeof(text), "%.400s: %s\n", what, strerror(errno));
	answer(id, FAILED, text, strlen(text));
}

static void answer_file(unsigned long id, int status, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0, room = 0;
	char *data = NULL;
	ssize_t got;

	if (fd < 0)
		return answer_failed(id, path);
	/* Read to the end: the size that stat() has for a file in /proc or /sys says nothing. */
	do {
		if (room - size < 65536) {
			room = room ? 2 * room : 1 << 18;
			data = realloc(data, room);
			if (!data || size > LIMIT) {
				errno = EFBIG;
				answer_failed(id, path);
				goto out;
			}
		}
		got = read(fd, data + size, room - size);
		if (got > 0)
			size += got;
	} while (got > 0);
	if (got < 0)
		answer_failed(id, path);
	else
		answer(id, status, data, size);
out:
	free(data);
	close(fd);
}

static int store(const char *path, int how, const void *data, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | how, 0755);
	int bad = fd < 0 || write_all(fd, data, length);
	int error = errno;

	if (fd >= 0 && close(fd) && !bad)
		return -1;
	errno = error;
	return bad ? -1 : 0;
}

/* Waits for the child until the deadline; true if it ended. */
static int wait_until(pid_t child, long milliseconds, int *status)
{
	struct timespec now, end;
	sigset_t set;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += milliseconds / 1000;
	end.tv_nsec += milliseconds % 1000 * 1000000;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (;;) {
		struct timespec left;

		if (waitpid(child, status, WNOHANG) == child)
			return 1;
		clock_gettime(CLOCK_MONOTONIC, &now);
		left.tv_sec = end.tv_sec - now.tv_sec;
		left.tv_nsec = end.tv_nsec - now.tv_nsec;
		if (left.tv_nsec < 0) {
			left.tv_sec--;
			left.tv_nsec += 1000000000;
		} else if (left.tv_nsec >= 1000000000) {
			left.tv_sec++;
			left.tv_nsec -= 1000000000;
		}
		if (left.tv_sec < 0)
			return 0;
		sigtimedwait(&set, NULL, &left);
	}
}

/* Puts what every blocked task waits for on the console: a time-out is mostly a lock that nobody gives back. */
static void show_blocked(void)
{
	store("/proc/sys/kernel/printk", 0, "8", 1);
	store("/proc/sysrq-trigger", 0, "w", 1);
}

static void run_script(unsigned long id, long milliseconds, const void *script, size_t length)
{
	int status, result;
	pid_t child;

	unlink(OUTPUT);		/* what an earlier script left running may still write to its own */
	if (store(SCRIPT, O_TRUNC, script, length) || store(OUTPUT, O_TRUNC, "", 0))
		return answer_failed(id, SCRIPT);
	child = fork();
	if (child < 0)
		return answer_failed(id, "fork");
	if (!child) {
		sigset_t none;
		int out = open(OUTPUT, O_WRONLY | O_APPEND), in = open("/dev/null", O_RDONLY);

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setsid();
		dup2(in, 0);
		dup2(out, 1);
		dup2(out, 2);
		execl("/bin/busybox", "sh", SCRIPT, (char *)NULL);
		_exit(127);
	}
	if (wait_until(child, milliseconds, &status)) {
		result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	} else {
		show_blocked();
		kill(-child, SIGKILL);
		result = wait_until(child, 5000, &status) ? TIMED_OUT : HUNG;
	}
	answer_file(id, result, OUTPUT);
}

static void serve(void)
{
	char head[128], verb[16];
	unsigned long id;
	unsigned int crc;
	size_t length, used;
	long milliseconds;
	char *body, *data;

	for (used = 0; used < sizeof(head) - 1; used++) {
		read_all(head + used, 1);
		if (head[used] == '\n')
			break;
	}
	head[used] = 0;
	if (sscanf(head, "%15s %lu %ld %zu %u", verb, &id, &milliseconds, &length, &crc) != 5 || length > LIMIT) {
		errno = EPROTO;
		die(head);
	}
	body = malloc(length + 1);
	if (!body)
		die("malloc");
	read_all(body, length);
	body[length] = 0;
	data = body + strlen(body) + 1;

	errno = EBADMSG;
	if (crc32((unsigned char *)body, length) != crc)
		answer_failed(id, "checksum");
	else if (!strcmp(verb, "run"))
		run_script(id, milliseconds, body, length);
	else if (!strcmp(verb, "get"))
		answer_file(id, 0, body);
	else if ((!strcmp(verb, "put") || !strcmp(verb, "add")) && data <= body + length)
		store(body, *verb == 'p' ? O_TRUNC : O_APPEND, data, body + length - data) ?
			answer_failed(id, body) : answer(id, 0, "", 0);
	else if (!strcmp(verb, "off"))
		reboot(RB_POWER_OFF);
	else
		answer_failed(id, verb);
	free(body);
}

int main(int argc, char **argv)
{
	struct termios raw;
	sigset_t set;

	if (argc != 2) {
		fprintf(stderr, "usage: agent SERIAL-LINE\n");
		return 2;
	}
	line = open(argv[1], O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (line < 0 || tcgetattr(line, &raw))
		die(argv[1]);
	cfmakeraw(&raw);
	cfsetspeed(&raw, B115200);
	if (tcsetattr(line, TCSAFLUSH, &raw))
		die(argv[1]);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);	/* for sigtimedwait() */

	answer(0, 0, "ready", 5);
	for (;;)
		serve();
}
