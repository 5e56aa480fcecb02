// SPDX-License-Identifier: GPL-2.0
/*
 * Put pages on a node, for what NUMA balancing and reclaim do with them.
 *
 *   pages use NODE MIB SECONDS [FILE]	  allocate there, free to move; with FILE, wait until it exists; then use them
 *   pages keep NODE MIB MICROSECONDS	  allocate, there if it has room, with a pause a MiB; keep in the background
 */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MIB		(1UL << 20)
#define PAGE		4096

/* linux/mempolicy.h has it since 5.15, the C library's headers may be older */
#define PREFERRED_MANY	5

static void policy(volatile char *pages, size_t size, int mode, int node)
{
	unsigned long mask = 1UL << node;

	if (syscall(SYS_mbind, pages, size, mode, mode == MPOL_DEFAULT ? NULL : &mask, sizeof(mask) * 8, 0)) {
		perror("pages: mbind");
		exit(1);
	}
}

static void use(volatile char *pages, size_t size, int node, int seconds, const char *file)
{
	volatile unsigned long spin = 0;
	time_t end;
	size_t at;

	policy(pages, size, MPOL_BIND, node);
	for (at = 0; at < size; at += PAGE)
		pages[at] = 1;
	policy(pages, size, MPOL_DEFAULT, node);

	/* Scanning for NUMA balancing goes by the time a task runs. */
	while (file && access(file, F_OK)) {
		for (at = 0; at < 20000000; at++)
			spin++;
		pages[0]++;
	}

	end = time(NULL) + seconds;
	while (time(NULL) < end) {
		for (at = 0; at < size; at += PAGE)
			pages[at]++;
		usleep(500);
	}
}

static void keep(volatile char *pages, size_t size, int node, int pause_us)
{
	size_t at;

	policy(pages, size, PREFERRED_MANY, node);
	for (at = 0; at < size; at += MIB) {
		memset((char *)pages + at, 1, MIB);
		usleep(pause_us);
	}
	if (fork())
		return;
	setsid();
	fclose(stdin);
	fclose(stdout);
	fclose(stderr);
	pause();
}

int main(int argc, char **argv)
{
	size_t size = argc > 3 ? strtoul(argv[3], NULL, 0) * MIB : 0;
	volatile char *pages;

	if (argc < 5 || !size) {
		fprintf(stderr, "pages: expected use NODE MIB SECONDS [FILE] or keep NODE MIB MICROSECONDS\n");
		return 2;
	}
	pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pages == MAP_FAILED) {
		perror("pages: mmap");
		return 1;
	}
	madvise((void *)pages, size, MADV_NOHUGEPAGE);
	if (!strcmp(argv[1], "use"))
		use(pages, size, atoi(argv[2]), atoi(argv[4]), argv[5]);
	else
		keep(pages, size, atoi(argv[2]), atoi(argv[4]));
	return 0;
}
