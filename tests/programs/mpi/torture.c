/* Ring and all-to-all with sizes and times drawn at random, the same in each run; point to point in many forms, collectives
 * over parts of the ranks, one-sided and file access. Each rank keeps memory that it goes through between the messages.
 * Prints a digest of all that was received. Arguments: rounds, MiB a rank, file.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static uint64_t digest = 1469598103934665603u;

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static void take(const void *data, size_t bytes)
{
	const unsigned char *at = data;

	for (size_t i = 0; i < bytes; i += 1 + bytes / 4096)
		digest = (digest ^ at[i]) * 1099511628211u;
}

static void fill(unsigned char *data, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		data[i] = (unsigned char)(seed + i * 7);
}

int main(int count, char **words)
{
	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int rounds = atoi(words[1]);
	size_t own = strtoul(words[2], NULL, 10) << 20;
	unsigned char *memory = malloc(own);

	fill(memory, own, (uint64_t)rank);
	for (int round = 0; round < rounds; round++) {
		size_t bytes = mix((uint64_t)round) % (round % 5 ? 3000 : 600000) + 1;
		unsigned char *out = malloc(bytes * (size_t)ranks), *in = malloc(bytes * (size_t)ranks);
		int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
		MPI_Request requests[2];
		MPI_Status status;

		/* Work of different length. */
		for (size_t i = 0; i < own / 8 * (mix((uint64_t)(round * ranks + rank)) % 8); i += 64)
			memory[i]++;
		fill(out, bytes, (uint64_t)(round + rank));
		switch (round % 4) {
		case 0:
			MPI_Sendrecv(out, (int)bytes, MPI_BYTE, right, 1, in, (int)bytes, MPI_BYTE, left, 1, MPI_COMM_WORLD, &status);
			break;
		case 1:
			MPI_Irecv(in, (int)bytes, MPI_BYTE, left, 1, MPI_COMM_WORLD, &requests[0]);
			MPI_Isend(out, (int)bytes, MPI_BYTE, right, 1, MPI_COMM_WORLD, &requests[1]);
			MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
			break;
		case 2:
			if (rank % 2 == 0)
				MPI_Ssend(out, (int)bytes, MPI_BYTE, right, 1, MPI_COMM_WORLD);
			MPI_Probe(left, 1, MPI_COMM_WORLD, &status);
			MPI_Recv(in, (int)bytes, MPI_BYTE, left, 1, MPI_COMM_WORLD, &status);
			if (rank % 2)
				MPI_Ssend(out, (int)bytes, MPI_BYTE, right, 1, MPI_COMM_WORLD);
			break;
		default: {
			MPI_Message message;

			MPI_Isend(out, (int)bytes, MPI_BYTE, right, 1, MPI_COMM_WORLD, &requests[0]);
			MPI_Mprobe(left, 1, MPI_COMM_WORLD, &message, &status);
			MPI_Mrecv(in, (int)bytes, MPI_BYTE, &message, &status);
			MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
		}
		}
		take(in, bytes);
		if (round % 3 == 0) {
			fill(out, bytes * (size_t)ranks, (uint64_t)(round * 3 + rank));
			MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
			take(in, bytes * (size_t)ranks);
		}
		if (round % 7 == 0) {
			MPI_Comm part;
			double sum = rank * 0.1 + round, all;

			MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
			MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, part);
			take(&all, sizeof(all));
			MPI_Comm_free(&part);
			MPI_Barrier(MPI_COMM_WORLD);
		}
		free(out);
		free(in);
	}

	/* One-sided: each adds to its right neighbour's counter, under fences and under locks. */
	int64_t *counter;
	MPI_Win window;

	MPI_Win_allocate(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &window);
	*counter = 0;
	MPI_Win_fence(0, window);
	for (int i = 0; i < 5; i++) {
		int64_t one = rank + 1;

		MPI_Accumulate(&one, 1, MPI_INT64_T, (rank + 1) % ranks, 0, 1, MPI_INT64_T, MPI_SUM, window);
		MPI_Win_fence(i == 4 ? MPI_MODE_NOSUCCEED : 0, window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 5; i++) {
		int64_t one = rank + 1;

		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, (rank + 2) % ranks, 0, window);
		MPI_Accumulate(&one, 1, MPI_INT64_T, (rank + 2) % ranks, 0, 1, MPI_INT64_T, MPI_SUM, window);
		MPI_Win_unlock((rank + 2) % ranks, window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
	take(counter, 8);
	MPI_Win_unlock(rank, window);
	MPI_Win_free(&window);

	/* A file that all write and read together. */
	MPI_File file;
	uint64_t mine[512], theirs[512];

	for (int i = 0; i < 512; i++)
		mine[i] = mix((uint64_t)(rank * 512 + i));
	MPI_File_open(MPI_COMM_WORLD, words[3], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
	MPI_File_write_at_all(file, rank * (MPI_Offset)sizeof(mine), mine, 512, MPI_UINT64_T, MPI_STATUS_IGNORE);
	MPI_File_sync(file);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_read_at_all(file, (rank + 1) % ranks * (MPI_Offset)sizeof(mine), theirs, 512, MPI_UINT64_T, MPI_STATUS_IGNORE);
	take(theirs, sizeof(theirs));
	MPI_File_close(&file);

	take(memory, own);
	uint64_t *digests = malloc(8 * (size_t)ranks);

	MPI_Gather(&digest, 1, MPI_UINT64_T, digests, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	for (int i = 0; rank == 0 && i < ranks; i++)
		printf("torture: rank %d digest %016llx\n", i, (unsigned long long)digests[i]);
	MPI_Finalize();
	return 0;
}
