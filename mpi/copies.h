/* Single copies between ranks (Open MPI's vader, UCX's cma): one rank reads or writes another's memory. Included by shim.c
 * alone.
 *
 * The kernel pins as many as 1024 pages of the other rank and then waits, page by page, until the rest is there. What is
 * pinned cannot leave, so a rank that was left a few pages must first exceed its budget, and ranks that do so to each other
 * wait for each other's pages: an Allreduce of 8 MiB took 10 s instead of 0.6. So while anything is paged, copies are made
 * in pieces.
 */

/* Most bytes, and the boundary that pieces end at: 16 pages. */
#define PIECE ((size_t)64 * 1024)

typedef ssize_t copies(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long, unsigned long);

static ssize_t in_pieces(copies *copy, pid_t pid, const struct iovec *own, unsigned long own_count,
			 const struct iovec *theirs, unsigned long their_count, unsigned long flags)
{
	size_t own_done = 0, their_done = 0;
	ssize_t total = 0, done;

	for (;;) {
		while (own_count && own_done == own->iov_len)
			own++, own_count--, own_done = 0;
		while (their_count && their_done == theirs->iov_len)
			theirs++, their_count--, their_done = 0;
		if (!own_count || !their_count)
			return total;

		struct iovec from = { (char *)own->iov_base + own_done, own->iov_len - own_done };
		struct iovec to = { (char *)theirs->iov_base + their_done, theirs->iov_len - their_done };
		size_t bytes = PIECE - (uintptr_t)to.iov_base % PIECE;

		if (from.iov_len < bytes)
			bytes = from.iov_len;
		if (to.iov_len < bytes)
			bytes = to.iov_len;
		from.iov_len = to.iov_len = bytes;
		done = copy(pid, &from, 1, &to, 1, flags);
		/* Of what failed, as much as was done before is told; the next call says why. */
		if (done < 0)
			return total ? total : done;
		total += done;
		if ((size_t)done < bytes)
			return total;
		own_done += bytes;
		their_done += bytes;
	}
}

/* Whether the kernel would take so many vectors, and how much they ask for makes pieces worth while. */
static int worth_pieces(const struct iovec *theirs, unsigned long own_count, unsigned long their_count)
{
	size_t bytes = 0;

	if (!joined || !own_count || own_count > 1024 || their_count > 1024 || !rank.paged())
		return 0;
	for (unsigned long i = 0; i < their_count; i++)
		if (theirs[i].iov_len > SSIZE_MAX - bytes)
			return 0;
		else
			bytes += theirs[i].iov_len;
	return bytes > PIECE;
}

#define COPY(name) \
	EXPORT ssize_t name(pid_t pid, const struct iovec *own, unsigned long own_count, const struct iovec *theirs, \
			    unsigned long their_count, unsigned long flags) \
	{ \
		static _Atomic(copies *) next; \
		copies *function = next; \
		if (!function) { \
			*(void **)&function = dlsym(RTLD_NEXT, #name); \
			next = function; \
		} \
		if (!worth_pieces(theirs, own_count, their_count)) \
			return function(pid, own, own_count, theirs, their_count, flags); \
		return in_pieces(function, pid, own, own_count, theirs, their_count, flags); \
	}

COPY(process_vm_readv)
COPY(process_vm_writev)
