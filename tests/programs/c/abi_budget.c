/* A budget that becomes smaller while nothing is paged: paging begins, and what is in RAM comes to fit. Arguments: MiB of
 * data, MiB of the new budget, 1 to reserve so much that the process is watched already. */
#include "abi.h"
#include <time.h>

int main(int argc, char **argv)
{
	size_t bytes = argument(argc, argv, 1, 100) * MEGABYTE, budget = argument(argc, argv, 2, 64) * MEGABYTE;
	struct ream_status status = {.size = sizeof(status)};
	uint64_t *data = malloc(bytes);
	char *reserve = argument(argc, argv, 3, 0) ? malloc((size_t)4 << 30) : NULL;
	time_t end = time(NULL) + 60;

	must(data && (argc < 4 || argv[3][0] == '0' || reserve));
	fill(data, bytes / 8, 3, 3);
	must(ream_status(&status) == 0 && status.paging == 0 && status.resident >= bytes);
	must(ream_budget(budget) == 0);
	do {
		must(time(NULL) < end && ream_status(&status) == 0);
	} while (!status.paging || in_core(data, bytes) > budget / PAGE);
	must(status.budget == budget);
	check(data, bytes / 8, 3, 3, "in a smaller budget");
	must(in_core(data, bytes) <= budget / PAGE);
	puts("fits");
	free(data);
	free(reserve);
	return 0;
}
