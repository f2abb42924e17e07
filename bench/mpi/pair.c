/* Small messages to and fro between the first two ranks; the others wait for the end. */
#include "bench.h"

uint64_t pair(size_t bytes, int rounds)
{
	uint64_t token = bytes;

	begin();
	for (int i = 0; i < rounds * 1000 && rank < 2 && ranks > 1; i++) {
		if (rank == 0) {
			MPI_Send(&token, 1, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD);
			MPI_Recv(&token, 1, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(&token, 1, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			token = token * 3 + 1;
			MPI_Send(&token, 1, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD);
		}
	}
	end();
	uint64_t is = bytes;

	for (int i = 0; i < rounds * 1000 && rank < 2 && ranks > 1; i++)
		is = is * 3 + 1;
	if (token + (corrupt != 0) != is)
		wrong("the token is another one");
	return token;
}
