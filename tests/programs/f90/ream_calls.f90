! Every procedure of the module ream, rightly and wrongly. Argument: session, or alone.
program ream_calls
  use, intrinsic :: iso_c_binding, only: c_loc, c_ptr
  use, intrinsic :: iso_fortran_env, only: int64, real32, real64
  use ream
  implicit none
  real(real64), pointer :: matrix(:, :), row(:), none(:, :, :)
  real(real32), pointer :: long_one(:), part(:)
  real(real64), allocatable, target :: own(:)
  type(ream_state) :: state
  character(len=16) :: kind
  integer :: stat, i
  logical :: session

  call get_command_argument(1, kind)
  session = kind == 'session'
  state = ream_status()
  call must(state%session .eqv. session, 'a session')
  if (session) call must(state%budget == 64_int64 * 2_int64**20 .and. state%engine /= '', 'its budget')
  if (.not. session) call must(state%budget == 0, 'no budget')

  call ream_allocate(matrix, [1024, 2048], name='matrix')
  call must(size(matrix, 1) == 1024 .and. size(matrix, 2) == 2048 .and. lbound(matrix, 1) == 1, 'a shape')
  call must(all(matrix == 0), 'zeros')
  matrix = 3
  call ream_advise(matrix, ream_cold)
  call ream_advise(matrix(:, 10:20), ream_willneed)
  call ream_advise(c_loc(matrix), 4096_int64, ream_keep)
  call must(sum(matrix) == 3.0_real64 * size(matrix), 'the values')
  call ream_advise(matrix(1:10, :), ream_cold, stat)
  call must(stat == -22, 'a section with gaps')
  call ream_advise(matrix, 77, stat)
  call must(stat == -22, 'advice')
  call ream_advise(c_loc(matrix), 0_int64, ream_cold, stat)
  call must(stat == -22, 'no bytes')
  call ream_pin(matrix(:, 1:4), stat)
  call must(stat == 0, 'a pin')
  call ream_unpin(matrix(:, 1:4))
  call ream_advise(matrix, ream_drop)
  call must(all(matrix == 0), 'dropped')

  row => matrix(:, 2)
  call ream_deallocate(row, stat)
  call must(stat == -22 .and. associated(row), 'a section freed')
  call ream_deallocate(matrix)
  call must(.not. associated(matrix), 'nullified')
  call ream_deallocate(matrix, stat)
  call must(stat == -22, 'freed twice')

  ! More elements than a 4-byte integer counts, touched at both ends.
  call ream_allocate(long_one, [2_int64**31 + 5_int64], name='long', stat=stat)
  call must(stat == 0, 'a long one')
  call must(size(long_one, kind=int64) == 2_int64**31 + 5_int64, 'its size')
  long_one(1) = 1
  long_one(2_int64**31 + 5_int64) = 2
  part => long_one(2_int64**31:)
  call must(size(part) == 6 .and. sum(part) == 2, 'its end')
  call ream_deallocate(long_one)

  call ream_allocate(none, [3, 0, 4])
  call must(associated(none) .or. size(none) == 0, 'an empty one')
  call ream_deallocate(none)
  call ream_allocate(row, [-1], stat=stat)
  call must(stat == -22 .and. .not. associated(row), 'a negative extent')
  call ream_allocate(matrix, [2_int64**62, 2_int64**62], stat=stat)
  call must(stat == -12 .and. .not. associated(matrix), 'too large')
  call ream_allocate(row, [10], name='a "bad" name', stat=stat)
  call must(stat == -22, 'a bad name')
  call ream_allocate(row, [10], page_size=5, stat=stat)
  call must(stat == -22, 'a page size')
  call ream_allocate(row, [1000000], page_size=4096, resident=.true., stat=stat)
  call must(stat == 0, 'a resident one')
  row = 1
  call ream_deallocate(row)

  call ream_phase('first')
  call ream_phase('second', stat)
  call must(stat == 0, 'a phase')
  call ream_phase(stat=stat)
  call must(stat == 0, 'no phase')
  call ream_phase(repeat('x', 40), stat)
  call must(merge(stat == -22, .true., session), 'a long phase')

  call ream_enable(.true., smallest=1048576_int64)
  call ream_enable(.true., smallest=10_int64, largest=5_int64, stat=stat)
  call must(stat == -22, 'an empty range')
  call ream_enable(.true., smallest=-1_int64, stat=stat)
  call must(stat == -22, 'a negative size')
  allocate (own(1000000))
  do i = 1, size(own)
    own(i) = i
  end do
  call ream_advise(own, ream_sequential)
  call must(sum(own) == 500000500000.0_real64, 'an allocated one')
  call ream_enable(.false.)

  call ream_budget(32_int64 * 2_int64**20, stat)
  call must(stat == merge(0, -107, session), 'a budget')
  call ream_budget(-1_int64, stat)
  call must(stat == -22, 'a negative budget')
  if (session) then
    call ream_start(64_int64 * 2_int64**20, stat=stat)
    call must(stat == -114, 'a second session')
  else
    call ream_start(1_int64, stat=stat)
    call must(stat == -34, 'a small session')
  end if
  call must(len(ream_error(-22)) > 5 .and. ream_error(-22) /= ream_error(-12), 'texts')
  print '(a)', 'all is well'
  if (kind == 'stops') call ream_deallocate(matrix)

contains

  subroutine must(condition, what)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: what
    if (.not. condition) then
      print '(2a)', 'FAILED: ', what
      error stop 99
    end if
  end subroutine must

end program ream_calls
