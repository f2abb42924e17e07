/* Constants of MPI that are objects of the implementation's in Open MPI: found, not linked with. Included by shim.c alone. */

#ifdef OPEN_MPI
/* Not the next one: the program may have taken a copy of its own, which is everybody's then. */
#define CONSTANT(what, type, constant, name) \
	static type what(void) \
	{ \
		static _Atomic(type) found; \
		if (!found) \
			found = (type)dlsym(RTLD_DEFAULT, name); \
		if (!found) \
			found = (type)real(name); \
		return found; \
	}
#else
#define CONSTANT(what, type, constant, name) \
	static type what(void) \
	{ \
		return constant; \
	}
#endif

CONSTANT(world_of_all, MPI_Comm, MPI_COMM_WORLD, "ompi_mpi_comm_world")
CONSTANT(null_comm, MPI_Comm, MPI_COMM_NULL, "ompi_mpi_comm_null")
CONSTANT(null_type, MPI_Datatype, MPI_DATATYPE_NULL, "ompi_mpi_datatype_null")
CONSTANT(byte_type, MPI_Datatype, MPI_BYTE, "ompi_mpi_byte")
CONSTANT(fatal_errors, MPI_Errhandler, MPI_ERRORS_ARE_FATAL, "ompi_mpi_errors_are_fatal")

/* Handles that are none are for the call itself to complain of: whatever else is asked about them would complain first, in its own
 * name, and to the program's error handler.
 */
static int is_comm(MPI_Comm comm)
{
	return comm && comm != null_comm();
}

static int is_type(MPI_Datatype type)
{
	return type && type != null_type();
}
