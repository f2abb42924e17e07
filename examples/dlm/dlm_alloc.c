/* The same without the keyword: DLM's functions. Each half of the matrix is got before it is used, and put back after.
 *
 *     cc -O2 dlm_alloc.c -o dlm_alloc $(pkg-config --cflags --libs dlm)
 *     DLM_MEMORY=64M ./dlm_alloc
 */
#include <dlm.h>
#include <stdio.h>

#define MAX 8192

int main(int argc, char *argv[])
{
	size_t bytes = sizeof(int) * MAX * MAX;
	int (*a)[MAX];
	long sum = 0;

	if (dlm_startup(&argc, &argv))
		return 1;
	a = (int (*)[MAX])dlm_alloc(bytes);
	if (!a) {
		perror("dlm_alloc");
		return 1;
	}
	for (int half = 0; half < 2; half++) {
		int (*part)[MAX] = a + half * (MAX / 2);

		dlm_get(part, bytes / 2);
		for (int i = 0; i < MAX / 2; i++)
			for (int j = 0; j < MAX; j++)
				part[i][j] = ((half * (MAX / 2) + i) * 31 + j * 17) % 1009;
		dlm_put(part, bytes / 2);
	}
	for (int i = 0; i < MAX; i++)
		for (int j = 0; j < MAX; j++)
			sum += a[i][j];
	printf("%zu MiB, sum %ld\n", bytes >> 20, sum);
	dlm_free(a);
	dlm_shutdown();
	return 0;
}
