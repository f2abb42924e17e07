/* Fills memory with text that can be found again, waits for SIGUSR1, and looks whether it is still there; so does a child,
 * if one is wanted. Arguments: MiB, and how many children. */
#include "common.h"
#include <signal.h>
#include <sys/wait.h>

static void go_on(int signal)
{
	(void)signal;
}

static void look(const char *block, size_t pages)
{
	char text[64];

	for (size_t page = 0; page < pages; page++) {
		int length = snprintf(text, sizeof(text), "the known pattern of page %zu, ", page);

		for (size_t at = 0; at + length <= PAGE; at += length)
			if (memcmp(block + page * PAGE + at, text, length) != 0)
				fail("page %zu is not as it was written, at %zu", page, at);
	}
}

int main(int argc, char **argv)
{
	size_t pages = argument(argc, argv, 1, 64) * MEGABYTE / PAGE, children = argument(argc, argv, 2, 0);
	char *block = malloc(pages * PAGE), text[64];

	must(block);
	signal(SIGUSR1, go_on);
	for (size_t page = 0; page < pages; page++) {
		int length = snprintf(text, sizeof(text), "the known pattern of page %zu, ", page);

		for (size_t at = 0; at + length <= PAGE; at += length)
			memcpy(block + page * PAGE + at, text, length);
	}
	pause();
	for (size_t child = 0; child < children; child++) {
		int status;
		pid_t pid = fork();

		must(pid >= 0);
		if (pid == 0) {
			look(block, pages);
			_exit(0);
		}
		must(waitpid(pid, &status, 0) == pid && status == 0);
	}
	look(block, pages);
	printf("right\n");
	return 0;
}
