! What a Fortran program touches: COMMON, module arrays with and without values, ALLOCATEd arrays on two OpenMP threads,
! arrays on both stacks; prints a line for each, as c/look.h does.
module looking
  use iso_c_binding
  implicit none
  integer, parameter :: mebibyte = 131072
  interface
    subroutine look_begin() bind(c)
    end subroutine look_begin
    subroutine look_say(name, memory, bytes) bind(c)
      import :: c_char, c_size_t, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(in) :: memory(*)
      integer(c_size_t), value :: bytes
    end subroutine look_say
  end interface
contains
  ! Touches an array, and looks at it.
  subroutine touched(name, words, count)
    character(len=*), intent(in) :: name
    integer, intent(in) :: count
    integer(c_int64_t), intent(inout) :: words(count)
    integer :: i
    do i = 1, count
      words(i) = words(i) + i
    end do
    call look_say(name // c_null_char, words, int(count, c_size_t) * 8_c_size_t)
  end subroutine touched

  subroutine allocated_array(name, count)
    character(len=*), intent(in) :: name
    integer, intent(in) :: count
    integer(c_int64_t), allocatable :: words(:)
    allocate (words(count))
    words = 1
    call touched(name, words, count)
    deallocate (words)
  end subroutine allocated_array

  subroutine on_main_stack()
    integer(c_int64_t) :: words(6 * mebibyte)
    words = 1
    call touched('stack_main', words, size(words))
  end subroutine on_main_stack

  subroutine on_worker_stack()
    integer(c_int64_t) :: words(40 * mebibyte)
    words = 1
    call touched('stack_large_worker', words, size(words))
  end subroutine on_worker_stack
end module looking

module held
  use looking
  implicit none
  integer(c_int64_t), save :: bss_4m(4 * mebibyte)
  integer(c_int64_t), save :: data_8m(8 * mebibyte) = 1
end module held

program coverage
  use looking
  use held
  use omp_lib
  implicit none
  integer(c_int64_t) :: bss_64m(64 * mebibyte)
  common /large/ bss_64m

  call look_begin()
  call touched('bss_4m', bss_4m, size(bss_4m))
  call touched('bss_64m', bss_64m, size(bss_64m))
  call touched('data_8m', data_8m, size(data_8m))
  call allocated_array('heap_main_large', 48 * mebibyte)
  call on_main_stack()
  !$omp parallel num_threads(2)
  if (omp_get_thread_num() == 1) then
    call allocated_array('heap_worker_large', 48 * mebibyte)
    call on_worker_stack()
  end if
  !$omp end parallel
end program coverage
