/* Calls with mistakes in them, after enough memory was used that pages are in the store. The first argument: "told" prints, of
 * each mistake, what the call returned and how often the program's error handler was called; a number makes that mistake where
 * errors end the program. The second: MiB a rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE (1 << 20)

static int rank, told, calls;
static char *one, *other;
static MPI_Comm copy;
static int number;
static MPI_Request request;

static void handler(MPI_Comm *comm, int *code, ...)
{
	(void)comm, (void)code;
	calls++;
}

static void make(int mistake, const char *name, int code)
{
	int class = MPI_SUCCESS;

	MPI_Error_class(code, &class);
	printf("%d %s: class %d, %d calls\n", mistake, name, class, calls);
}

#define MISTAKE(mistake, call) \
	do { \
		if (rank == 0 && (told || number == (mistake))) { \
			calls = 0; \
			make(mistake, #call, call); \
		} \
	} while (0)

int main(int count, char **words)
{
	MPI_Errhandler errors;
	MPI_Comm others;
	size_t bytes;

	MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	MPI_Comm_dup(MPI_COMM_WORLD, &others);
	told = strcmp(words[1], "told") == 0;
	number = told ? 0 : atoi(words[1]);
	bytes = strtoul(words[2], NULL, 10) << 19;
	one = malloc(bytes);
	other = malloc(bytes);
	if (told) {
		MPI_Comm_create_errhandler(handler, &errors);
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, errors);
		MPI_Comm_set_errhandler(MPI_COMM_SELF, errors);
	}
	/* Twice, so that much has been written to the store. */
	for (int i = 0; i < 3; i++) {
		memset(one, i, bytes);
		memset(other, i, bytes);
		MPI_Barrier(others);
	}
	MISTAKE(1, MPI_Bcast(one, LARGE, MPI_CHAR, 0, MPI_COMM_NULL));
	MISTAKE(2, MPI_Allreduce(one, other, LARGE, MPI_CHAR, MPI_MAX, MPI_COMM_NULL));
	MISTAKE(3, MPI_Send(one, 1, MPI_CHAR, 1, 1, MPI_COMM_NULL));
	MISTAKE(4, MPI_Isend(one, 1, MPI_CHAR, 1, 1, MPI_COMM_NULL, &request));
	MISTAKE(5, MPI_Send_init(one, 1, MPI_CHAR, 1, 1, MPI_COMM_NULL, &request));
	/* Of those that follow the communicator's own errors end the program, or go to its handler. */
	if (told)
		MPI_Comm_set_errhandler(copy, errors);
	MISTAKE(6, MPI_Send(one, 1, MPI_CHAR, 1000, 1, copy));
	/* Under Ream a type is only looked at where errors end the program. */
	if (!told)
		MISTAKE(7, MPI_Gather(one, LARGE, MPI_CHAR, other, LARGE, MPI_DATATYPE_NULL, 0, copy));
	MPI_Barrier(others);
	MPI_Finalize();
	return 0;
}
