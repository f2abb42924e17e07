/* Blocks of 200 KiB, which could each be a mapping: how many KiB of them are in RAM, and on large pages, as coverage.c says it.
 * Then how many KiB the program has in RAM when they are all freed, with nothing behind them. It has no large static data, so
 * nothing but its heap can be large. With an argument it only says what its malloc is told. */
#include "look.h"

#define COUNT 600

static char *blocks[COUNT];

int main(int count, char **arguments)
{
	const char *told = getenv("GLIBC_TUNABLES");

	struct sum sum = {0, 0, 0, 0};
	static char buffer[4096];
	char text[256] = "";
	unsigned long all, resident;
	int file;

	(void)arguments;
	if (count > 1) {
		puts(told ? told : "nothing");
		return 0;
	}
	must(setvbuf(stdout, buffer, _IOFBF, sizeof buffer) == 0);
	begin_to_look();
	for (int i = 0; i < COUNT; i++) {
		blocks[i] = malloc(200 << 10);
		must(blocks[i]);
		memset(blocks[i], 1, 200 << 10);
	}
	for (int i = 0; i < COUNT; i++)
		add(&sum, blocks[i], 200 << 10);
	say("blocks", &sum);
	for (int i = 0; i < COUNT; i++)
		free(blocks[i]);
	file = open("/proc/self/statm", O_RDONLY);
	must(file >= 0 && read(file, text, sizeof text - 1) > 0 && sscanf(text, "%lu %lu", &all, &resident) == 2);
	printf("left 0 0 %lu 0\n", resident * 4);
	return 0;
}
