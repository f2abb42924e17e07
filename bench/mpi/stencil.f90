! ream-bench-mpi-fortran-* stencil MIB ROUNDS [--corrupt]: heat on a torus. Each rank has rows of it and those next to them, which it gets
! from its neighbours in each round; its threads share the work. Prints what the programs in C print, and ends as they do. Heat is
! neither made nor lost, and the result is the same bits with any number of threads.
program stencil
  use, intrinsic :: iso_fortran_env, only: int64, real64, error_unit
  use mpi_f08
  implicit none
  integer, parameter :: columns = 1024
  real(real64), parameter :: tenth = 0.1_real64
  real(real64), allocatable :: here(:, :), then(:, :)
  real(real64) :: heat(2), sums(2), begun, seconds
  integer(int64) :: digest
  integer(int64), allocatable :: digests(:)
  integer :: rank, ranks, rows, rounds, round, mebibytes, i, j, west, east, level
  character(len=32) :: word, last
  logical :: corrupt

  call get_command_argument(1, word)
  mebibytes = number(2)
  rounds = number(3)
  call get_command_argument(4, last)
  corrupt = command_argument_count() == 4 .and. last == '--corrupt'
  if (word /= 'stencil' .or. .not. (corrupt .or. command_argument_count() == 3) .or. mebibytes < 1 .or. rounds < 1) then
    write (error_unit, '(a)') 'usage: ream-bench-mpi-fortran stencil MIB ROUNDS [--corrupt]'
    stop 125
  end if
  call MPI_Init_thread(MPI_THREAD_FUNNELED, level)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  rows = mebibytes * (1048576 / 16 / columns)
  allocate (here(columns, 0:rows + 1), then(columns, 0:rows + 1))
  then = 0
  do j = 0, rows + 1
    do i = 1, columns
      here(i, j) = mod(int(i, int64) * 7919 + (int(j, int64) + int(rank, int64) * rows) * 104729, 1009_int64)
    end do
  end do
  heat(1) = sum_of_all(here(:, 1:rows))
  call MPI_Barrier(MPI_COMM_WORLD)
  begun = MPI_Wtime()
  do round = 1, rounds
    call exchange(here)
    !$omp parallel do private(i, west, east)
    do j = 1, rows
      do i = 1, columns
        west = merge(columns, i - 1, i == 1)
        east = merge(1, i + 1, i == columns)
        then(i, j) = here(i, j) + tenth * (here(west, j) + here(east, j) + here(i, j - 1) + here(i, j + 1) - 4 * here(i, j))
      end do
    end do
    !$omp end parallel do
    call swap(here, then)
  end do
  call MPI_Barrier(MPI_COMM_WORLD)
  seconds = MPI_Wtime() - begun
  if (corrupt .and. rank == ranks - 1) here(1, 1) = here(1, 1) + 1e6_real64
  heat(2) = sum_of_all(here(:, 1:rows))
  if (abs(heat(2) - heat(1)) > 1e-9_real64 * heat(1)) then
    if (rank == 0) write (error_unit, '(a)') 'ream-bench-mpi-fortran: WRONG RESULT: heat was made or lost'
    call MPI_Finalize()
    stop 3
  end if
  digest = 0
  do j = 1, rows
    do i = 1, columns
      call join(digest, transfer(here(i, j), digest))
    end do
  end do
  allocate (digests(ranks))
  call MPI_Allgather(digest, 1, MPI_INTEGER8, digests, 1, MPI_INTEGER8, MPI_COMM_WORLD)
  digest = 0
  do i = 1, ranks
    call join(digest, digests(i))
  end do
  if (rank == 0) write (*, '(f0.6, 1x, z16.16)') seconds, digest
  call MPI_Finalize()

contains

  ! An argument that is a number; 0 if it is none.
  integer function number(place)
    integer, intent(in) :: place
    character(len=32) :: text
    integer :: status

    call get_command_argument(place, text)
    read (text, *, iostat=status) number
    if (status /= 0) number = 0
  end function

  ! The first row goes down, the last one up.
  subroutine exchange(grid)
    real(real64), intent(inout), asynchronous :: grid(:, 0:)
    type(MPI_Request) :: requests(4)
    integer :: up, down

    up = modulo(rank + 1, ranks)
    down = modulo(rank - 1, ranks)
    call MPI_Irecv(grid(1, 0), columns, MPI_DOUBLE_PRECISION, down, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Irecv(grid(1, rows + 1), columns, MPI_DOUBLE_PRECISION, up, 2, MPI_COMM_WORLD, requests(2))
    call MPI_Isend(grid(1, rows), columns, MPI_DOUBLE_PRECISION, up, 1, MPI_COMM_WORLD, requests(3))
    call MPI_Isend(grid(1, 1), columns, MPI_DOUBLE_PRECISION, down, 2, MPI_COMM_WORLD, requests(4))
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
  end subroutine

  subroutine swap(one, other)
    real(real64), allocatable, intent(inout) :: one(:, :), other(:, :)
    real(real64), allocatable :: third(:, :)

    call move_alloc(one, third)
    call move_alloc(other, one)
    call move_alloc(third, other)
  end subroutine

  real(real64) function sum_of_all(values)
    real(real64), intent(in) :: values(:, :)

    sums(1) = sum(values)
    call MPI_Allreduce(sums(1), sums(2), 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
    sum_of_all = sums(2)
  end function

  subroutine join(to, bits)
    integer(int64), intent(inout) :: to
    integer(int64), intent(in) :: bits

    to = ieor(to, bits) * 1099511628211_int64
    to = ieor(to, ishft(to, -29))
  end subroutine

end program
