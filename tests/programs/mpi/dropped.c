/* Buffers that calls overwrite wholly, in part, or not at all: what was there before is gone, or is there still. Around each
 * buffer are bytes that no call may touch. Argument: KiB of a rank's part.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EDGE 1237

static int rank, ranks;
static size_t part, all;
static unsigned char *area, *in, *out;
static uint64_t sum = 1469598103934665603u;

static unsigned char was(size_t i)
{
	return (unsigned char)(i * 31 + 7);
}

/* Every byte of the area is what it was. */
static void renew(void)
{
	for (size_t i = 0; i < all + 2 * EDGE; i++)
		area[i] = was(i);
	for (size_t i = 0; i < all; i++)
		out[i] = (unsigned char)(i * 13 + (size_t)rank);
}

static void fail(const char *what, size_t at)
{
	fprintf(stderr, "dropped: rank %d: %s: wrong at byte %zu of %zu\n", rank, what, at, all);
	MPI_Abort(MPI_COMM_WORLD, 9);
}

/* These bytes are as before, all others are for the digest; then everything is as before again. */
static void look(const char *what, size_t kept_from, size_t kept_to)
{
	for (size_t i = 0; i < all + 2 * EDGE; i++) {
		int edge = i < EDGE || i >= EDGE + all, kept = i >= EDGE + kept_from && i < EDGE + kept_to;

		if ((edge || kept) && area[i] != was(i))
			fail(what, i - EDGE);
		sum = (sum ^ area[i]) * 1099511628211u;
	}
	renew();
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int count, char **words)
{
	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	part = strtoul(words[1], NULL, 10) << 10;
	all = part * (size_t)ranks;
	area = malloc(all + 2 * EDGE);
	out = malloc(all);
	in = area + EDGE;
	int n = (int)part, *counts = calloc((size_t)ranks, sizeof(int)), *places = calloc((size_t)ranks, sizeof(int));
	MPI_Datatype striped;
	MPI_Comm returning;
	MPI_Message message;
	MPI_Status status;
	MPI_Request request;

	renew();
	for (int round = 0; round < 2; round++) {
		int root = round % ranks;

		MPI_Allgather(out, n, MPI_BYTE, in, n, MPI_BYTE, MPI_COMM_WORLD);
		look("allgather", 0, 0);
		MPI_Allgather(MPI_IN_PLACE, n, MPI_BYTE, in, n, MPI_BYTE, MPI_COMM_WORLD);
		look("allgather in place", part * (size_t)rank, part * (size_t)(rank + 1));
		MPI_Alltoall(out, n, MPI_BYTE, in, n, MPI_BYTE, MPI_COMM_WORLD);
		look("alltoall", 0, 0);
		MPI_Bcast(in, n * ranks, MPI_BYTE, root, MPI_COMM_WORLD);
		look("bcast", 0, all);
		MPI_Gather(out, n, MPI_BYTE, in, n, MPI_BYTE, root, MPI_COMM_WORLD);
		look("gather", 0, rank == root ? 0 : all);
		MPI_Scatter(out, n, MPI_BYTE, in, n, MPI_BYTE, root, MPI_COMM_WORLD);
		look("scatter", part, all);
		MPI_Allreduce(out, in, n * ranks / 4, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
		look("allreduce", all / 4 * 4, all);
		MPI_Allreduce(MPI_IN_PLACE, in, n * ranks / 4, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
		look("allreduce in place", 0, all);
		MPI_Reduce(out, in, n * ranks, MPI_UINT8_T, MPI_MAX, root, MPI_COMM_WORLD);
		look("reduce", 0, rank == root ? 0 : all);
		MPI_Scan(out, in, n * ranks, MPI_UINT8_T, MPI_MAX, MPI_COMM_WORLD);
		look("scan", 0, 0);
		MPI_Reduce_scatter_block(out, in, n, MPI_UINT8_T, MPI_MAX, MPI_COMM_WORLD);
		look("reduce_scatter_block", part, all);
		/* Nothing for the first. */
		MPI_Exscan(out, in, n * ranks, MPI_UINT8_T, MPI_MAX, MPI_COMM_WORLD);
		look("exscan", 0, rank == 0 ? all : 0);

		/* With gaps, between parts and within them. */
		for (int i = 0; i < ranks; i++) {
			counts[i] = n - 5000;
			places[i] = i * n + 2500;
		}
		MPI_Allgatherv(out, n - 5000, MPI_BYTE, in, counts, places, MPI_BYTE, MPI_COMM_WORLD);
		look("allgatherv", 0, 2500);
		MPI_Type_vector(n / 8, 4, 8, MPI_BYTE, &striped);
		MPI_Type_commit(&striped);
		MPI_Bcast(in, 1, striped, root, MPI_COMM_WORLD);
		look("bcast with holes", 0, all);
		MPI_Type_free(&striped);

		/* Shorter than the buffer. */
		MPI_Isend(out, n / 3, MPI_BYTE, (rank + 1) % ranks, 0, MPI_COMM_WORLD, &request);
		MPI_Recv(in, n * ranks, MPI_BYTE, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, &status);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		look("recv", part / 3, all);
		MPI_Isend(out, n / 3, MPI_BYTE, (rank + 1) % ranks, 0, MPI_COMM_WORLD, &request);
		MPI_Mprobe((rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, &message, &status);
		MPI_Mrecv(in, n * ranks, MPI_BYTE, &message, &status);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		look("mrecv", part / 3, all);
		int flag = 0;

		MPI_Isend(out, n / 2, MPI_BYTE, (rank + 1) % ranks, 0, MPI_COMM_WORLD, &request);
		while (!flag)
			MPI_Improbe((rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, &flag, &message, &status);
		MPI_Mrecv(in, n * ranks, MPI_BYTE, &message, &status);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		look("mrecv after improbe", part / 2, all);

		/* Refused, and told so: what was there must be there still. */
		MPI_Comm_dup(MPI_COMM_WORLD, &returning);
		MPI_Comm_set_errhandler(returning, MPI_ERRORS_RETURN);
		if (MPI_Bcast(in, n * ranks, MPI_BYTE, ranks + 5, returning) == MPI_SUCCESS)
			fail("a root that is none", 0);
		look("refused", 0, all);
		MPI_Comm_free(&returning);
	}
	uint64_t *sums = malloc(sizeof(sum) * (size_t)ranks);

	MPI_Gather(&sum, 1, MPI_UINT64_T, sums, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	for (int i = 0; rank == 0 && i < ranks; i++)
		printf("dropped: rank %d %016llx\n", i, (unsigned long long)sums[i]);
	MPI_Finalize();
	return 0;
}
