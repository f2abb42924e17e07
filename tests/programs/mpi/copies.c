/* Large messages that go both ways, which MPI copies straight out of the other rank's memory, and such copies made by hand:
 * of parts that lie otherwise here than there, and beyond the end of what is there. Argument: KiB of a rank's buffers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static int rank, ranks;

static unsigned of(int who, int round, size_t i)
{
	return (unsigned)i * 2654435761u + (unsigned)(who * 97 + round);
}

static void check(int good, const char *what, size_t at)
{
	if (good)
		return;
	fprintf(stderr, "copies: rank %d: %s: wrong at %zu\n", rank, what, at);
	MPI_Abort(MPI_COMM_WORLD, 9);
}

/* Another rank's words, by the kernel, and words of ours to it. */
static void by_hand(unsigned *mine, unsigned *in, size_t words)
{
	struct { long pid; unsigned *words; char *end; } own = { getpid(), mine, NULL }, all[64];
	size_t bytes = words * sizeof(*in), page = (size_t)sysconf(_SC_PAGESIZE);
	int next = (rank + 1) % ranks;

	/* Memory that ends. */
	own.end = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(own.end + 32 * page, 32 * page);
	memset(own.end, rank + 1, 32 * page);
	MPI_Allgather(&own, sizeof(own), MPI_BYTE, all, sizeof(own), MPI_BYTE, MPI_COMM_WORLD);

	struct iovec there[] = { { all[next].words, bytes / 3 }, { NULL, 0 }, { (char *)all[next].words + bytes / 3, bytes - bytes / 3 } };
	struct iovec here[] = { { in, 4 }, { (char *)in + 4, bytes / 2 }, { NULL, 0 }, { (char *)in + 4 + bytes / 2, bytes / 2 - 4 } };

	memset(in, 0, bytes);
	if (process_vm_readv((pid_t)all[next].pid, here, 4, there, 3, 0) < 0 && errno == EPERM) {
		/* Not everybody may. */
		MPI_Barrier(MPI_COMM_WORLD);
		return;
	}
	for (size_t i = 0; i < bytes / 8; i++)
		check(in[i] == of(next, 0, i), "read by hand", i);
	MPI_Barrier(MPI_COMM_WORLD);
	there[0] = (struct iovec){ (char *)all[next].words + 12, bytes - 12 };
	here[0] = (struct iovec){ (char *)in, bytes - 12 };
	for (size_t i = 0; i < words; i++)
		in[i] = of(rank, 7, i);
	check(process_vm_writev((pid_t)all[next].pid, here, 1, there, 1, 0) == (ssize_t)bytes - 12, "written by hand", 0);
	MPI_Barrier(MPI_COMM_WORLD);
	for (size_t i = 3; i < words; i++)
		check(mine[i] == of((rank + ranks - 1) % ranks, 7, i - 3), "written by hand", i);
	/* Up to the end, and nothing beyond it. */
	there[0] = (struct iovec){ all[next].end, 64 * page };
	here[0] = (struct iovec){ in, 64 * page };
	check(process_vm_readv((pid_t)all[next].pid, here, 1, there, 1, 0) == (ssize_t)(32 * page), "to the end", 0);
	there[0].iov_base = all[next].end + 32 * page;
	check(process_vm_readv((pid_t)all[next].pid, here, 1, there, 1, 0) == -1 && errno == EFAULT, "beyond the end", 0);
	MPI_Barrier(MPI_COMM_WORLD);
	munmap(own.end, 32 * page);
}

int main(int count, char **argument)
{
	MPI_Init(&count, &argument);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	size_t words = strtoul(argument[1], NULL, 10) << 8;
	unsigned *out = malloc(words * sizeof(*out)), *in = malloc(words * sizeof(*in));
	uint64_t sum = 0, total = 0;

	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < words; i++)
			out[i] = of(rank, round, i);
		MPI_Allreduce(out, in, (int)words, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD);
		for (size_t i = 0; i < words; i++)
			sum = sum * 31 + in[i];
		int left = (rank + ranks - 1) % ranks;

		MPI_Sendrecv(out, (int)words, MPI_UNSIGNED, (rank + 1) % ranks, round, in, (int)words, MPI_UNSIGNED, left, round,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < words; i++)
			check(in[i] == of(left, round, i), "received", i);
	}
	for (size_t i = 0; i < words; i++)
		out[i] = of(rank, 0, i);
	by_hand(out, in, words);
	MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("copies: %016llx\n", (unsigned long long)total);
	MPI_Finalize();
	return 0;
}
