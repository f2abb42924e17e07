/* What a call is sure to overwrite need not be saved. Included by shim.c alone.
 *
 * MPI promises that a buffer is overwritten wholly where counts say how much is received, and not how much at most: in
 * collectives, but not in receives, unless the message was probed and taken out of the queue (MPI_Mprobe). Left out are
 * neighbours' forms, where one that is nobody leaves its part as it is; MPI_Exscan, of which the first rank gets nothing;
 * datatypes with holes; what is read as well (MPI_IN_PLACE); communicators between two groups; and those whose errors are
 * given back to the program, which may go on with what was there before.
 */

/* Buffers of fewer bytes are not looked at. */
#define LEAST (64 * 1024)

/* The message that this thread probed last. */
static __thread struct {
	MPI_Message message;
	size_t bytes;
} known_message __attribute__((tls_model("initial-exec")));

/* Where the call reads from. A program may not have it read what it overwrites; where one does all the same, nothing of that is
 * dropped.
 */
static __thread const char *reads __attribute__((tls_model("initial-exec")));

static int worth_dropping(void)
{
	return joined && is_of_program() && rank.drops();
}

#define CALL(type, name) \
	static __typeof__(PMPI_##type) *call; \
	if (!call) \
		*(void **)&call = real("PMPI_" #type); \
	return call name

static int type_size(MPI_Datatype type, int *size)
{
	CALL(Type_size, (type, size));
}

static int type_extent(MPI_Datatype type, MPI_Aint *first, MPI_Aint *extent)
{
	CALL(Type_get_extent, (type, first, extent));
}

static int type_true_extent(MPI_Datatype type, MPI_Aint *first, MPI_Aint *extent)
{
	CALL(Type_get_true_extent, (type, first, extent));
}

static int comm_rank(MPI_Comm comm, int *number)
{
	CALL(Comm_rank, (comm, number));
}

static int comm_size(MPI_Comm comm, int *size)
{
	CALL(Comm_size, (comm, size));
}

static int is_between(MPI_Comm comm, int *yes)
{
	CALL(Comm_test_inter, (comm, yes));
}

static int errors_of(MPI_Comm comm, MPI_Errhandler *handler)
{
	CALL(Comm_get_errhandler, (comm, handler));
}

static int forget_errors(MPI_Errhandler *handler)
{
	CALL(Errhandler_free, (handler));
}

/* Bytes of an element that has no holes; 0 of others. */
static size_t solid(MPI_Datatype type)
{
	MPI_Aint first, extent, true_first, true_extent;
	int size;

	if (!is_type(type) || type_size(type, &size) || type_extent(type, &first, &extent) ||
	    type_true_extent(type, &true_first, &true_extent))
		return 0;
	return size > 0 && !first && !true_first && extent == size && true_extent == size ? (size_t)size : 0;
}

/* Whether a call over this communicator that fails ends the program; and this rank's number in it. */
static int certain(MPI_Comm comm, int *number, int *size)
{
	MPI_Errhandler handler;
	int between = 1, fatal;

	if (!is_comm(comm) || errors_of(comm, &handler))
		return 0;
	fatal = handler == fatal_errors();
	forget_errors(&handler);
	if (!fatal || is_between(comm, &between) || between)
		return 0;
	return !comm_rank(comm, number) && !comm_size(comm, size);
}

static void drop(void *buffer, long long from, long long count, size_t element)
{
	char *start = (char *)buffer + (size_t)from * element;
	size_t bytes = (size_t)count * element;

	if (!buffer || from < 0 || count <= 0 || bytes < LEAST || (reads >= start && reads < start + bytes))
		return;
	rank.overwritten(start, bytes);
}

/* One part after the other of each rank, but perhaps for this one's. */
static void drop_parts(void *buffer, int count, MPI_Datatype type, int size, int but)
{
	size_t element = solid(type);

	if (!element || count <= 0)
		return;
	if (but < 0) {
		drop(buffer, 0, (long long)count * size, element);
		return;
	}
	drop(buffer, 0, (long long)count * but, element);
	drop(buffer, (long long)count * (but + 1), (long long)count * (size - but - 1), element);
}

static void drop_places(void *buffer, const int counts[], const int places[], MPI_Datatype type, int size, int but)
{
	size_t element = solid(type);

	for (int i = 0; element && counts && places && i < size; i++)
		if (i != but)
			drop(buffer, places[i], counts[i], element);
}

#define IN_COMM(comm) \
	int me, size; \
	if (!certain(comm, &me, &size)) \
		return
#define UNUSED(name) (void)(name)
#define READS(buffer) (reads = (buffer))

static void drop_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	IN_COMM(comm);
	READS(NULL);
	if (me != root)
		drop_parts(buffer, count, type, 1, -1);
}

static void drop_Allgather(const void *from, int sent, MPI_Datatype sent_type, void *buffer, int count, MPI_Datatype type,
			   MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(sent), UNUSED(sent_type);
	drop_parts(buffer, count, type, size, from == MPI_IN_PLACE ? me : -1);
}

static void drop_Allgatherv(const void *from, int sent, MPI_Datatype sent_type, void *buffer, const int counts[],
			    const int places[], MPI_Datatype type, MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(sent), UNUSED(sent_type);
	drop_places(buffer, counts, places, type, size, from == MPI_IN_PLACE ? me : -1);
}

static void drop_Gather(const void *from, int sent, MPI_Datatype sent_type, void *buffer, int count, MPI_Datatype type,
			int root, MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(sent), UNUSED(sent_type);
	if (me == root)
		drop_parts(buffer, count, type, size, from == MPI_IN_PLACE ? me : -1);
}

static void drop_Gatherv(const void *from, int sent, MPI_Datatype sent_type, void *buffer, const int counts[],
			 const int places[], MPI_Datatype type, int root, MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(sent), UNUSED(sent_type);
	if (me == root)
		drop_places(buffer, counts, places, type, size, from == MPI_IN_PLACE ? me : -1);
}

static void drop_Scatter(const void *from, int sent, MPI_Datatype sent_type, void *buffer, int count, MPI_Datatype type,
			 int root, MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(sent), UNUSED(sent_type), UNUSED(root);
	if (buffer != MPI_IN_PLACE)
		drop_parts(buffer, count, type, 1, -1);
}

static void drop_Scatterv(const void *from, const int sent[], const int sent_places[], MPI_Datatype sent_type, void *buffer,
			  int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(sent), UNUSED(sent_places), UNUSED(sent_type), UNUSED(root);
	if (buffer != MPI_IN_PLACE)
		drop_parts(buffer, count, type, 1, -1);
}

static void drop_Alltoall(const void *from, int sent, MPI_Datatype sent_type, void *buffer, int count, MPI_Datatype type,
			  MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(sent), UNUSED(sent_type);
	if (from != MPI_IN_PLACE)
		drop_parts(buffer, count, type, size, -1);
}

static void drop_Alltoallv(const void *from, const int sent[], const int sent_places[], MPI_Datatype sent_type, void *buffer,
			   const int counts[], const int places[], MPI_Datatype type, MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(sent), UNUSED(sent_places), UNUSED(sent_type);
	if (from != MPI_IN_PLACE)
		drop_places(buffer, counts, places, type, size, -1);
}

static void drop_Reduce(const void *from, void *buffer, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(op);
	if (me == root && from != MPI_IN_PLACE)
		drop_parts(buffer, count, type, 1, -1);
}

static void drop_Allreduce(const void *from, void *buffer, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(op);
	if (from != MPI_IN_PLACE)
		drop_parts(buffer, count, type, 1, -1);
}

static void drop_Reduce_scatter_block(const void *from, void *buffer, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	drop_Allreduce(from, buffer, count, type, op, comm);
}

static void drop_Scan(const void *from, void *buffer, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	drop_Allreduce(from, buffer, count, type, op, comm);
}

static void drop_Reduce_scatter(const void *from, void *buffer, const int counts[], MPI_Datatype type, MPI_Op op,
				MPI_Comm comm)
{
	IN_COMM(comm);
	READS(from);
	UNUSED(op);
	if (from != MPI_IN_PLACE && counts)
		drop_parts(buffer, counts[me], type, 1, -1);
}

/* A message is this thread's to receive: how long it is, is known. */
static void probed(MPI_Comm comm, const MPI_Message *message, const MPI_Status *status)
{
	static __typeof__(PMPI_Get_count) *count_of;
	int bytes, me, size;

	known_message.bytes = 0;
	if (!joined || !rank.drops() || status == MPI_STATUS_IGNORE || !certain(comm, &me, &size))
		return;
	if (!count_of)
		*(void **)&count_of = real("PMPI_Get_count");
	if (count_of(status, byte_type(), &bytes) == MPI_SUCCESS && bytes > 0) {
		known_message.message = *message;
		known_message.bytes = (size_t)bytes;
	}
}

static void drop_Mrecv(void *buffer, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
	size_t element, bytes = known_message.bytes;

	UNUSED(status);
	READS(NULL);
	known_message.bytes = 0;
	/* With threads, another one may have received that message, and its name be a new one's. */
	if (!bytes || multiple || !message || *message != known_message.message)
		return;
	element = solid(type);
	if (element && count > 0 && (size_t)count * element >= bytes)
		drop(buffer, 0, (long long)bytes, 1);
}
