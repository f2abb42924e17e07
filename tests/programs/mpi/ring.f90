! A ring and sums with the bindings of mpi_f08; each rank goes through memory of its own between the messages. Argument: rounds.
program ring
  use mpi_f08
  implicit none
  integer :: rank, ranks, round, rounds, received, i
  integer, parameter :: n = 1250000
  double precision, allocatable :: x(:)
  double precision :: total, part
  character(len=16) :: word
  type(MPI_Status) :: status
  type(MPI_Request) :: request

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call get_command_argument(1, word)
  read (word, *) rounds
  allocate (x(n))
  x = [(dble(mod(i * (rank + 1), 1000)), i = 1, n)]
  total = 0
  do round = 1, rounds
    part = sum(x) / n
    call MPI_Allreduce(MPI_IN_PLACE, part, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
    total = total + part
    call MPI_Irecv(received, 1, MPI_INTEGER, modulo(rank - 1, ranks), round, MPI_COMM_WORLD, request)
    call MPI_Send(rank + round, 1, MPI_INTEGER, modulo(rank + 1, ranks), round, MPI_COMM_WORLD)
    call MPI_Wait(request, status)
    x(received + 1) = x(received + 1) + received
    call MPI_Barrier(MPI_COMM_WORLD)
  end do
  if (rank == 0) print '(a, f24.12)', 'ring f08:', total
  call MPI_Finalize()
end program ring
