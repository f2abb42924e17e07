/* Every function of dlm.h, rightly and wrongly. Argument: "session", "alone", or "refused" where dlm_startup must fail. */
#include "common.h"
#include <dlm.h>
#include <pthread.h>

static void *use(void *number)
{
	for (int round = 0; round < 50; round++) {
		size_t size = ((size_t)number * 977 + (size_t)round * 4096) % (4 * MEGABYTE) + 1;
		unsigned char *block = dlm_alloc(size);

		must(block && !((uintptr_t)block & (PAGE - 1)) && !block[0] && !block[size - 1]);
		block[0] = block[size - 1] = 1;
		must(dlm_get(block, size) == 0 && dlm_put(block, size) == 0);
		must(block[size - 1] == 1 && dlm_free(block) == 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	char **before = argv;
	char *block, here;

	must(argc == 2);
	if (!strcmp(argv[1], "refused")) {
		must(dlm_startup(&argc, &argv) < 0 && dlm_startup(NULL, NULL) < 0);
		must(!dlm_alloc(4096) && errno);
		must(dlm_free(&here) == -EINVAL);
		return 0;
	}
	must(dlm_startup(&argc, &argv) == 0 && argc == 2 && argv == before && dlm_startup(NULL, NULL) == 0);
	errno = 0;
	must(!dlm_alloc(0) && errno == EINVAL);
	errno = 0;
	must(!dlm_alloc(SIZE_MAX) && errno == ENOMEM && !dlm_alloc(SIZE_MAX / 2 + 5) && !dlm_alloc((size_t)1 << 60));
	must(dlm_free(NULL) == 0 && dlm_free(&here) == -EINVAL && dlm_free((void *)8) == -EINVAL);
	must(dlm_get(NULL, 1) == -EINVAL && dlm_put(&here, 0) == -EINVAL && dlm_get(&here, SIZE_MAX) == -EINVAL);
	block = dlm_alloc(8 * MEGABYTE);
	must(block && !((uintptr_t)block & (2 * MEGABYTE - 1)));
	memset(block, 7, 8 * MEGABYTE);
	must(dlm_put(block, 8 * MEGABYTE) == 0 && dlm_get(block, 8 * MEGABYTE) == 0);
	for (size_t i = 0; i < 8 * MEGABYTE; i += PAGE)
		must(block[i] == 7);
	must(dlm_free(block + PAGE) == -EINVAL && dlm_free(block) == 0 && dlm_free(block) == -EINVAL);
	for (size_t i = 0; i < 4; i++)
		must(pthread_create(&threads[i], NULL, use, (void *)(i + 1)) == 0);
	for (int i = 0; i < 4; i++)
		must(pthread_join(threads[i], NULL) == 0);
	block = dlm_alloc(PAGE);
	must(block && dlm_shutdown() == 0 && !dlm_alloc(PAGE) && (block[5] = 1) && dlm_free(block) == 0);
	return 0;
}
