/* Stands for libream.so, which the library for ranks of MPI tells about messages, and sends them in every way that there is: two
 * ranks to each other. Prints in how many ways, and how many were not counted, or wrongly.
 */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks, other, ways, wrong;
/* By the number of the rank that they are for, among all. */
static unsigned sent[2], elsewhere;

int ream_rank_join(unsigned number) { return number > 1; }
void ream_rank_enter(void) {}
void ream_rank_leave(void) {}
void ream_rank_idle(unsigned naps, int how) { (void)naps, (void)how; }
void ream_rank_rouse(void) {}
void ream_rank_defer(unsigned naps) { (void)naps; }
void ream_rank_pauses(void) {}
uint64_t ream_rank_faults(void) { return 0; }
int ream_rank_counts(void) { return 1; }
int ream_rank_drops(void) { return 0; }
int ream_rank_paged(void) { return 0; }
void ream_rank_overwritten(const void *data, size_t bytes) { (void)data, (void)bytes; }
void ream_rank_end(void) {}

void ream_rank_sent(unsigned number)
{
	if (number < 2)
		sent[number]++;
	else
		elsewhere++;
}

/* What was sent since the last look was this, and to the other rank. */
static void expect(const char *what, unsigned times)
{
	ways++;
	if (sent[other] != times || sent[rank] || elsewhere) {
		fprintf(stderr, "rank %d: %s: %u, %u to itself, %u elsewhere, not %u\n", rank, what, sent[other], sent[rank], elsewhere,
			times);
		wrong++;
	}
	sent[0] = sent[1] = elsewhere = 0;
}

static int in, out = 7;
static MPI_Request comes, goes[2];

/* The other rank's message is waited for already: so one that must not wait for that may be sent. */
static void ready(void)
{
	MPI_Irecv(&in, 1, MPI_INT, other, 1, MPI_COMM_WORLD, &comes);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void came(const char *what, unsigned times)
{
	MPI_Wait(&comes, MPI_STATUS_IGNORE);
	wrong += in != 7;
	in = 0;
	expect(what, times);
}

#define TO other, 1, MPI_COMM_WORLD

static void wait_for(const char *what)
{
	MPI_Wait(&goes[0], MPI_STATUS_IGNORE);
	came(what, 1);
}

/* A request that is started twice, the second time with all. */
static void start(const char *what)
{
	expect(what, 0);
	ready();
	MPI_Start(&goes[0]);
	MPI_Wait(&goes[0], MPI_STATUS_IGNORE);
	came(what, 1);
	ready();
	MPI_Startall(1, goes);
	MPI_Wait(&goes[0], MPI_STATUS_IGNORE);
	came(what, 1);
	MPI_Request_free(&goes[0]);
}

/* A request that receives, and may be called as one that sent. */
static void start_receiving(void)
{
	MPI_Recv_init(&in, 1, MPI_INT, other, 1, MPI_COMM_WORLD, &goes[0]);
	MPI_Start(&goes[0]);
	expect("Recv_init", 0);
	MPI_Send(&out, 1, MPI_INT, TO);
	MPI_Wait(&goes[0], MPI_STATUS_IGNORE);
	expect("Send to a request", 1);
	MPI_Request_free(&goes[0]);
}

/* Communicators in which ranks have other numbers. */
static void elsewhere_called(void)
{
	MPI_Comm turned, inter;

	MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &turned);
	MPI_Sendrecv(&out, 1, MPI_INT, rank, 2, &in, 1, MPI_INT, rank, 2, turned, MPI_STATUS_IGNORE);
	expect("Sendrecv, turned round", 1);
	MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, other, 3, &inter);
	sent[0] = sent[1] = elsewhere = 0;
	MPI_Sendrecv(&out, 1, MPI_INT, 0, 2, &in, 1, MPI_INT, 0, 2, inter, MPI_STATUS_IGNORE);
	expect("Sendrecv between groups", 1);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&turned);
}

int main(int count, char **words)
{
	int all = 0;
	char buffer[4096];

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	other = !rank;
	MPI_Buffer_attach(buffer, sizeof(buffer));
	MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Send(&out, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
	expect("nothing", 0);

#define NOW(name) ready(), MPI_##name(&out, 1, MPI_INT, TO), came(#name, 1)
#define LATER(name) ready(), MPI_##name(&out, 1, MPI_INT, TO, &goes[0]), wait_for(#name)
#define AGAIN(name) MPI_##name(&out, 1, MPI_INT, TO, &goes[0]), start(#name)
	NOW(Send);
	NOW(Ssend);
	NOW(Rsend);
	NOW(Bsend);
	LATER(Isend);
	LATER(Issend);
	LATER(Irsend);
	LATER(Ibsend);
	AGAIN(Send_init);
	start_receiving();
	AGAIN(Ssend_init);
	AGAIN(Rsend_init);
	AGAIN(Bsend_init);
	MPI_Sendrecv(&out, 1, MPI_INT, other, 2, &in, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	expect("Sendrecv", 1);
	MPI_Sendrecv_replace(&out, 1, MPI_INT, other, 2, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	expect("Sendrecv_replace", 1);
#if MPI_VERSION >= 4
	MPI_Isendrecv(&out, 1, MPI_INT, other, 2, &in, 1, MPI_INT, other, 2, MPI_COMM_WORLD, &goes[0]);
	MPI_Wait(&goes[0], MPI_STATUS_IGNORE);
	expect("Isendrecv", 1);
	MPI_Isendrecv_replace(&out, 1, MPI_INT, other, 2, other, 2, MPI_COMM_WORLD, &goes[0]);
	MPI_Wait(&goes[0], MPI_STATUS_IGNORE);
	expect("Isendrecv_replace", 1);
#endif
	elsewhere_called();
	MPI_Buffer_detach(&buffer, &count);
	MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	expect("the end", 0);
	if (rank == 0)
		printf("%d ways, %d wrong\n", ways, all);
	MPI_Finalize();
	return 0;
}
