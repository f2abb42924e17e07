/* A call or more of each family of MPI that the other programs leave out: persistent and partitioned requests, several ways to
 * wait for some, non-blocking collectives, neighbours, windows in every kind of epoch, files, communicators between groups,
 * matched probes. In between a rank goes through memory of its own, and finds out whether it is what it was. What comes is
 * compared with what must. Prints a digest of it, and how much was wrong. Arguments: MiB of a rank, file.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Enough for messages to be fetched by their receiver, not sent at once. */
#define COUNT 30000

static int rank, ranks, left, right, wrong;
static uint32_t *own, *out, *in, passes, walks;
static size_t words;
static uint64_t digest = 1469598103934665603u;

static void must(int right_so, const char *what)
{
	if (!right_so) {
		fprintf(stderr, "rank %d: %s: wrong\n", rank, what);
		wrong++;
	}
}

/* Through all of the own memory. */
static void walk(void)
{
	size_t bad = 0;

	for (size_t i = 0; i < words; i++) {
		bad += own[i] != (uint32_t)i * 2654435761u + (uint32_t)rank + walks;
		own[i]++;
	}
	must(!bad, "own memory");
	walks++;
}

/* What is sent next is made; before every second time memory is gone through. */
static void compute(void)
{
	if (passes++ % 2 == 0)
		walk();
	for (int i = 0; i < COUNT * ranks; i++)
		out[i] = (uint32_t)(rank * 1000003 + i) + passes;
	memset(in, 0, COUNT * (size_t)ranks * 4);
}

/* `count` numbers from this place on are those that the rank `from` has at `first`. */
static void came(const char *what, const uint32_t *data, int count, int from, int first)
{
	int bad = 0;

	for (int i = 0; i < count; i++) {
		bad += data[i] != (uint32_t)(from * 1000003 + first + i) + passes;
		digest = (digest ^ data[i]) * 1099511628211u;
	}
	must(!bad, what);
}

static void requests(void)
{
	MPI_Request all[4], *many = calloc((size_t)ranks, sizeof(*many));
	int flag, at, done, *places = calloc((size_t)ranks, sizeof(*places));

	MPI_Send_init(out, COUNT, MPI_UINT32_T, right, 1, MPI_COMM_WORLD, &all[0]);
	MPI_Ssend_init(out + COUNT, COUNT, MPI_UINT32_T, left, 2, MPI_COMM_WORLD, &all[1]);
	MPI_Recv_init(in, COUNT, MPI_UINT32_T, left, 1, MPI_COMM_WORLD, &all[2]);
	MPI_Recv_init(in + COUNT, COUNT, MPI_UINT32_T, right, 2, MPI_COMM_WORLD, &all[3]);
	for (int round = 0; round < 3; round++) {
		compute();
		MPI_Startall(4, all);
		if (round == 0)
			MPI_Waitall(4, all, MPI_STATUSES_IGNORE);
		for (flag = 0; round == 1 && !flag;)
			MPI_Testall(4, all, &flag, MPI_STATUSES_IGNORE);
		for (done = 0; round == 2 && done < 4; done++)
			MPI_Waitany(4, all, &at, MPI_STATUS_IGNORE);
		came("persistent", in, COUNT, left, 0);
		came("persistent", in + COUNT, COUNT, right, COUNT);
	}
	for (int i = 0; i < 4; i++)
		MPI_Request_free(&all[i]);

	for (int round = 0; round < 3; round++) {
		MPI_Request goes = MPI_REQUEST_NULL;

		compute();
		for (int i = 0; i < ranks; i++)
			MPI_Irecv(in + i * COUNT, COUNT, MPI_UINT32_T, i, 3, MPI_COMM_WORLD, &many[i]);
		for (int i = 0; i < ranks; i++) {
			MPI_Isend(out + i * COUNT, COUNT, MPI_UINT32_T, i, 3, MPI_COMM_WORLD, &goes);
			MPI_Wait(&goes, MPI_STATUS_IGNORE);
		}
		for (done = 0; done < ranks; done += flag) {
			if (round == 0)
				MPI_Waitsome(ranks, many, &flag, places, MPI_STATUSES_IGNORE);
			else if (round == 1)
				MPI_Testsome(ranks, many, &flag, places, MPI_STATUSES_IGNORE);
			else
				MPI_Testany(ranks, many, &at, &flag, MPI_STATUS_IGNORE);
		}
		for (int i = 0; i < ranks; i++)
			came("some", in + i * COUNT, COUNT, i, rank * COUNT);
	}
	free(many);
	free(places);
}

static void matched(void)
{
	MPI_Request goes, comes;
	MPI_Message message;
	int flag = 0;

	compute();
	MPI_Isend(out, COUNT, MPI_UINT32_T, right, 4, MPI_COMM_WORLD, &goes);
	while (!flag)
		MPI_Improbe(left, 4, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
	MPI_Imrecv(in, COUNT, MPI_UINT32_T, &message, &comes);
	for (flag = 0; !flag;)
		MPI_Request_get_status(comes, &flag, MPI_STATUS_IGNORE);
	MPI_Wait(&comes, MPI_STATUS_IGNORE);
	MPI_Wait(&goes, MPI_STATUS_IGNORE);
	came("matched", in, COUNT, left, 0);
}

static void collectives(void)
{
	MPI_Request two[2];
	uint32_t mine = (uint32_t)rank + 1, sum = 0, before = 0;
	int flag = 0, *counts = calloc((size_t)ranks, sizeof(*counts)), *places = calloc((size_t)ranks, sizeof(*places));
	MPI_Datatype *types = calloc((size_t)ranks, sizeof(*types));

	compute();
	MPI_Ibarrier(MPI_COMM_WORLD, &two[0]);
	while (!flag)
		MPI_Test(&two[0], &flag, MPI_STATUS_IGNORE);
	MPI_Iallreduce(&mine, &sum, 1, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD, &two[0]);
	MPI_Ialltoall(out, COUNT, MPI_UINT32_T, in, COUNT, MPI_UINT32_T, MPI_COMM_WORLD, &two[1]);
	MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
	must(sum == (uint32_t)(ranks * (ranks + 1) / 2), "Iallreduce");
	for (int i = 0; i < ranks; i++)
		came("Ialltoall", in + i * COUNT, COUNT, i, rank * COUNT);
	compute();
	for (int i = 0; i < ranks; i++) {
		counts[i] = COUNT;
		places[i] = i * COUNT * 4;
		types[i] = MPI_UINT32_T;
	}
	MPI_Alltoallw(out, counts, places, types, in, counts, places, types, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		came("Alltoallw", in + i * COUNT, COUNT, i, rank * COUNT);
	compute();
	MPI_Exscan(&mine, &before, 1, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
	must(rank == 0 || before == (uint32_t)(rank * (rank + 1) / 2), "Exscan");
	MPI_Scan(&mine, &sum, 1, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
	must(sum == (uint32_t)((rank + 1) * (rank + 2) / 2), "Scan");
	MPI_Reduce_scatter(out, in, counts, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
	came("Reduce_scatter", in, COUNT, ranks - 1, rank * COUNT);
	free(counts);
	free(places);
	free(types);
}

static void neighbours(void)
{
	int periodic = 1, size = ranks, weight = 1, counts[2] = { COUNT, COUNT }, places[2] = { 0, COUNT };
	MPI_Comm ring, graph;
	MPI_Request request;

	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
	compute();
	MPI_Neighbor_allgather(out, COUNT, MPI_UINT32_T, in, COUNT, MPI_UINT32_T, ring);
	came("Neighbor_allgather", in, COUNT, left, 0);
	came("Neighbor_allgather", in + COUNT, COUNT, right, 0);
	compute();
	MPI_Neighbor_alltoall(out, COUNT, MPI_UINT32_T, in, COUNT, MPI_UINT32_T, ring);
	came("Neighbor_alltoall", in, COUNT, left, COUNT);
	came("Neighbor_alltoall", in + COUNT, COUNT, right, 0);
	compute();
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, &weight, 1, &right, &weight, MPI_INFO_NULL, 0, &graph);
	MPI_Neighbor_alltoallv(out, counts, places, MPI_UINT32_T, in, counts, places, MPI_UINT32_T, graph);
	came("Neighbor_alltoallv", in, COUNT, left, 0);
	MPI_Ineighbor_allgather(out, COUNT, MPI_UINT32_T, in, COUNT, MPI_UINT32_T, graph, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	came("Ineighbor_allgather", in, COUNT, left, 0);
	MPI_Comm_free(&graph);
	MPI_Comm_free(&ring);
}

static void windows(void)
{
	MPI_Win window;
	MPI_Group all, before, after;
	MPI_Request request;
	uint32_t one = 1, got = 0, counter = 0, seen;

	/* Memory that is paged, filled by the left one. */
	MPI_Win_create(in, COUNT * (MPI_Aint)ranks * 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_incl(all, 1, &left, &before);
	MPI_Group_incl(all, 1, &right, &after);
	compute();
	MPI_Win_post(before, 0, window);
	MPI_Win_start(after, 0, window);
	MPI_Put(out, COUNT, MPI_UINT32_T, right, 0, COUNT, MPI_UINT32_T, window);
	MPI_Win_complete(window);
	MPI_Win_wait(window);
	came("Put", in, COUNT, left, 0);
	compute();
	MPI_Win_fence(0, window);
	MPI_Get(out + COUNT, COUNT, MPI_UINT32_T, right, COUNT, COUNT, MPI_UINT32_T, window);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
	for (seen = 0; seen < COUNT && !out[COUNT + seen]; seen++)
		;
	must(seen == COUNT, "Get");
	compute();
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	MPI_Rput(out, COUNT, MPI_UINT32_T, right, COUNT, COUNT, MPI_UINT32_T, window, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Win_flush(right, window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Rget(in, COUNT, MPI_UINT32_T, right, COUNT, COUNT, MPI_UINT32_T, window, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	came("Rput and Rget", in, COUNT, rank, 0);
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&window);

	MPI_Win_create(&counter, 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	compute();
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < ranks; i++) {
		MPI_Fetch_and_op(&one, &got, MPI_UINT32_T, i, 0, MPI_SUM, window);
		MPI_Win_flush_local(i, window);
		MPI_Get_accumulate(&one, 1, MPI_UINT32_T, &got, 1, MPI_UINT32_T, i, 0, 1, MPI_UINT32_T, MPI_SUM, window);
	}
	MPI_Win_flush_all(window);
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, window);
	seen = 2 * (uint32_t)ranks;
	MPI_Compare_and_swap(&one, &seen, &got, MPI_UINT32_T, right, 0, window);
	MPI_Win_unlock(right, window);
	must(got == seen, "counted by all");
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
	must(counter == 1, "Compare_and_swap");
	MPI_Win_unlock(rank, window);
	MPI_Win_free(&window);
	MPI_Group_free(&all);
	MPI_Group_free(&before);
	MPI_Group_free(&after);
}

static void files(const char *path)
{
	MPI_File file;
	MPI_Datatype strips;
	MPI_Request request;
	MPI_Offset size, bytes = COUNT * 4;

	compute();
	MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
	/* Strips of 100 numbers, one of each rank after the other. */
	MPI_Type_vector(COUNT / 100, 100, 100 * ranks, MPI_UINT32_T, &strips);
	MPI_Type_commit(&strips);
	MPI_File_set_view(file, rank * (MPI_Offset)400, MPI_UINT32_T, strips, "native", MPI_INFO_NULL);
	MPI_File_write_all(file, out, COUNT, MPI_UINT32_T, MPI_STATUS_IGNORE);
	MPI_File_sync(file);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_set_view(file, right * (MPI_Offset)400, MPI_UINT32_T, strips, "native", MPI_INFO_NULL);
	MPI_File_read_at_all_begin(file, 0, in, COUNT, MPI_UINT32_T);
	MPI_File_read_at_all_end(file, in, MPI_STATUS_IGNORE);
	came("strips", in, COUNT, right, 0);
	compute();
	MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
	MPI_File_iwrite_at(file, rank * bytes, out, COUNT, MPI_UINT32_T, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_File_sync(file);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_iread_at(file, left * bytes, in, COUNT, MPI_UINT32_T, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	came("iread_at", in, COUNT, left, 0);
	/* By the pointer that all share, in the order of ranks. */
	compute();
	MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
	MPI_File_write_ordered(file, out, COUNT, MPI_UINT32_T, MPI_STATUS_IGNORE);
	MPI_File_sync(file);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
	MPI_File_read_ordered(file, in, COUNT, MPI_UINT32_T, MPI_STATUS_IGNORE);
	came("ordered", in, COUNT, rank, 0);
	MPI_File_get_size(file, &size);
	must(size == ranks * bytes, "size");
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_set_size(file, bytes);
	MPI_File_close(&file);
	MPI_Type_free(&strips);
}

static void groups(void)
{
	MPI_Comm half, inter, both, copy;
	MPI_Request request;
	int number, count;
	uint32_t mine = (uint32_t)rank, sum = 0, expected = 0;

	compute();
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, (rank + 1) % 2, 5, &inter);
	for (int i = (rank + 1) % 2; i < ranks; i += 2)
		expected += (uint32_t)i;
	MPI_Allreduce(&mine, &sum, 1, MPI_UINT32_T, MPI_SUM, inter);
	must(sum == expected, "Allreduce between groups");
	MPI_Comm_remote_size(inter, &count);
	MPI_Allgather(out, COUNT, MPI_UINT32_T, in, COUNT, MPI_UINT32_T, inter);
	for (int i = 0; i < count; i++)
		came("Allgather between groups", in + i * COUNT, COUNT, 2 * i + (rank + 1) % 2, 0);
	MPI_Barrier(inter);
	MPI_Intercomm_merge(inter, rank % 2, &both);
	MPI_Comm_rank(both, &number);
	must(number == rank / 2 + (rank % 2 ? (ranks + 1) / 2 : 0), "Intercomm_merge");
	MPI_Comm_idup(both, &copy, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	compute();
	MPI_Bcast(number == ranks - 1 ? out : in, COUNT, MPI_UINT32_T, ranks - 1, copy);
	if (number != ranks - 1)
		came("Bcast in a copy", in, COUNT, ranks % 2 ? ranks - 2 : ranks - 1, 0);
	MPI_Comm_free(&copy);
	MPI_Comm_free(&both);
	MPI_Comm_disconnect(&inter);
	MPI_Comm_free(&half);
}

/* What came with MPI 4. */
static void newest(void)
{
#if MPI_VERSION >= 4
	MPI_Request two[2];
	int flag = 0;

	MPI_Psend_init(out, 4, COUNT / 4, MPI_UINT32_T, right, 6, MPI_COMM_WORLD, MPI_INFO_NULL, &two[0]);
	MPI_Precv_init(in, 4, COUNT / 4, MPI_UINT32_T, left, 6, MPI_COMM_WORLD, MPI_INFO_NULL, &two[1]);
	for (int round = 0; round < 2; round++) {
		compute();
		MPI_Startall(2, two);
		for (int i = 0; i < 4; i++)
			MPI_Pready(i, two[0]);
		for (flag = 0; !flag;)
			MPI_Parrived(two[1], 3, &flag);
		MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
		came("partitions", in, COUNT, left, 0);
	}
	MPI_Request_free(&two[0]);
	MPI_Request_free(&two[1]);
	MPI_Alltoall_init(out, COUNT, MPI_UINT32_T, in, COUNT, MPI_UINT32_T, MPI_COMM_WORLD, MPI_INFO_NULL, &two[0]);
	for (int round = 0; round < 2; round++) {
		compute();
		MPI_Start(&two[0]);
		MPI_Wait(&two[0], MPI_STATUS_IGNORE);
		for (int i = 0; i < ranks; i++)
			came("Alltoall_init", in + i * COUNT, COUNT, i, rank * COUNT);
	}
	MPI_Request_free(&two[0]);
	compute();
	MPI_Isendrecv(out, COUNT, MPI_UINT32_T, right, 7, in, COUNT, MPI_UINT32_T, left, 7, MPI_COMM_WORLD, &two[0]);
	MPI_Wait(&two[0], MPI_STATUS_IGNORE);
	came("Isendrecv", in, COUNT, left, 0);
#endif
}

int main(int count, char **words_of)
{
	uint64_t *digests;
	int all = 0;

	MPI_Init(&count, &words_of);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	right = (rank + 1) % ranks;
	left = (rank + ranks - 1) % ranks;
	words = (strtoul(words_of[1], NULL, 10) << 20) / 4;
	own = malloc(words * 4);
	out = malloc(COUNT * (size_t)ranks * 4);
	in = malloc(COUNT * (size_t)ranks * 4);
	for (size_t i = 0; i < words; i++)
		own[i] = (uint32_t)i * 2654435761u + (uint32_t)rank;

	requests();
	matched();
	collectives();
	neighbours();
	windows();
	files(words_of[2]);
	groups();
	newest();

	walk();
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	digests = malloc(8 * (size_t)ranks);
	MPI_Gather(&digest, 1, MPI_UINT64_T, digests, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	for (int i = 0; rank == 0 && i < ranks; i++)
		printf("families: rank %d digest %016llx, %d wrong\n", i, (unsigned long long)digests[i], all);
	MPI_Finalize();
	return all ? 3 : 0;
}
