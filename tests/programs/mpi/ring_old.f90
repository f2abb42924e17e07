! The same ring with mpif.h, whose calls go another way in both implementations. Argument: rounds.
program ring_old
  implicit none
  include 'mpif.h'
  integer :: rank, ranks, round, rounds, received, sent, i, error, status(MPI_STATUS_SIZE)
  integer, parameter :: n = 1250000
  double precision, allocatable :: x(:)
  double precision :: total, part, all
  character(len=16) :: word

  call mpi_init(error)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, error)
  call mpi_comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(1, word)
  read (word, *) rounds
  allocate (x(n))
  x = [(dble(mod(i * (rank + 1), 1000)), i = 1, n)]
  total = 0
  do round = 1, rounds
    part = sum(x) / n
    call mpi_allreduce(part, all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    total = total + all
    sent = rank + round
    call mpi_sendrecv(sent, 1, MPI_INTEGER, modulo(rank + 1, ranks), round, received, 1, MPI_INTEGER, &
                      modulo(rank - 1, ranks), round, MPI_COMM_WORLD, status, error)
    x(received + 1) = x(received + 1) + received
    call mpi_barrier(MPI_COMM_WORLD, error)
  end do
  if (rank == 0) print '(a, f24.12)', 'ring mpif.h:', total
  call mpi_finalize(error)
end program ring_old
