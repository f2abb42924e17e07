/* Fills FIRST MiB and forks, makes the file READY, waits for the file GO, fills SECOND MiB more and forks again. Parent and
 * children check all that they have, the children after they have written half of it anew.
 */
#include "common.h"
#include <sys/stat.h>
#include <sys/wait.h>

static uint64_t *array;
static unsigned char *generation;

static void fill_page(size_t page, int number)
{
	generation[page] = number;
	fill(array + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, number);
}

static void check_pages(size_t pages)
{
	for (size_t page = 0; page < pages; page++)
		check(array + page * PAGE_WORDS, PAGE_WORDS, page * PAGE_WORDS, generation[page], "page");
}

static void wait_for(const char *file)
{
	struct stat there;

	while (stat(file, &there) != 0)
		usleep(5000);
}

static pid_t child(size_t pages, int number, const char *go)
{
	pid_t pid = fork();
	size_t page;

	if (pid != 0)
		return pid;
	wait_for(go);
	for (page = number % 2; page < pages; page += 2)
		fill_page(page, number);
	check_pages(pages);
	_exit(0);
}

int main(int count, char **arguments)
{
	size_t first, second, page;
	pid_t children[2];
	FILE *ready;
	int i, status;

	if (count < 5)
		return 2;
	first = strtoul(arguments[1], NULL, 10) << 8;
	second = strtoul(arguments[2], NULL, 10) << 8;
	array = malloc((first + second) * PAGE);
	generation = calloc(first + second, 1);
	if (!array || !generation)
		return 2;
	for (page = 0; page < first; page++)
		fill_page(page, 1);
	children[0] = count > 5 ? 0 : child(first, 2, arguments[4]);
	ready = fopen(arguments[3], "w");
	if (children[0] < 0 || !ready || fclose(ready))
		return 2;
	wait_for(arguments[4]);
	for (page = first; page < first + second; page++)
		fill_page(page, 3);
	check_pages(first + second);
	children[1] = count > 5 ? 0 : child(first + second, 4, arguments[4]);
	for (i = 0; i < 2; i++) {
		if (children[i] && (waitpid(children[i], &status, 0) != children[i] || status != 0)) {
			printf("child %d ended with status %x\n", i, status);
			return 4;
		}
	}
	check_pages(first + second);
	printf("all right\n");
	return 0;
}
