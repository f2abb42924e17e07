/* Messages, counted by who gets them, for --next=pending: those of calls that send, and of requests that are started again and
 * again. Included by shim.c alone.
 */

/* The number of a rank of a communicator among all; negative where it has none, or the call itself will complain of it. */
static int receiver(MPI_Comm comm, int to)
{
	int (*group_of)(MPI_Comm, MPI_Group *), (*translate)(MPI_Group, int, const int *, MPI_Group, int *);
	int (*is_inter)(MPI_Comm, int *), (*size_of)(MPI_Group, int *), (*forget)(MPI_Group *);
	MPI_Group theirs, world;
	int number = to, inter = 0, size = 0;

	if (to < 0)
		return to;
	if (!is_comm(comm))
		return -1;
	if (comm != world_of_all()) {
		*(void **)&is_inter = real("PMPI_Comm_test_inter");
		*(void **)&size_of = real("PMPI_Group_size");
		*(void **)&translate = real("PMPI_Group_translate_ranks");
		*(void **)&forget = real("PMPI_Group_free");
		if (is_inter(comm, &inter) != MPI_SUCCESS)
			return -1;
		*(void **)&group_of = real(inter ? "PMPI_Comm_remote_group" : "PMPI_Comm_group");
		group_of(comm, &theirs);
		size_of(theirs, &size);
		if (to < size) {
			*(void **)&group_of = real("PMPI_Comm_group");
			group_of(world_of_all(), &world);
			translate(theirs, 1, &to, world, &number);
			forget(&world);
		} else {
			number = -1;
		}
		forget(&theirs);
	}
	return number;
}

/* A message goes to a rank of a communicator. */
static void sends(MPI_Comm comm, int to)
{
	int number = receiver(comm, to);

	if (number >= 0)
		rank.sent((unsigned)number);
}

static int counts_messages(void)
{
	return counting && joined && is_of_program();
}

/* Requests that send when they are started, and to whom. Of two at the same place the later is known: counts are a hint. */
static struct kept {
	_Atomic uintptr_t request;
	_Atomic int to;
} kept[1024];

static struct kept *place_of(MPI_Request request)
{
	uint64_t mixed = (uint64_t)(uintptr_t)request * 0x9e3779b97f4a7c15u;

	return &kept[mixed >> 54];
}

/* A request will send to this rank whenever it is started; negative: to none. */
static void keep(MPI_Request request, int to)
{
	struct kept *place = place_of(request);

	if (to < 0 && place->request != (uintptr_t)request)
		return;
	place->request = (uintptr_t)request;
	place->to = to;
}

static void started(MPI_Request request)
{
	struct kept *place = place_of(request);
	int to = place->to;

	if (place->request == (uintptr_t)request && to >= 0)
		rank.sent((unsigned)to);
}

static void start_Start(const MPI_Request *request)
{
	if (request)
		started(*request);
}

static void start_Startall(int count, const MPI_Request *requests)
{
	for (int i = 0; requests && i < count; i++)
		started(requests[i]);
}
