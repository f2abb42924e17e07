! A program that was started in the ordinary way begins a session of 64 MiB, and fills and sums 256 MiB in an ALLOCATABLE
! array and in one of ream_allocate.
program ream_begins
  use, intrinsic :: iso_fortran_env, only: int64
  use ream
  implicit none
  integer, parameter :: words = 16 * 2**20
  integer(int64), allocatable :: own(:)
  integer(int64), pointer :: other(:)
  integer(int64) :: i, total
  integer :: pass
  type(ream_state) :: state

  call ream_start(64_int64 * 2_int64**20)
  state = ream_status()
  if (.not. state%session) error stop 3
  allocate (own(words))
  call ream_allocate(other, [words], name='other')
  total = 0
  do pass = 1, 2
    do i = 1, words
      own(i) = i * pass
      other(i) = -i
    end do
    total = total + sum(own) + sum(other)
  end do
  print '(i0)', total
  call ream_deallocate(other)
end program ream_begins
