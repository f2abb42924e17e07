! A COMMON block of 400 MiB, filled and summed by OpenMP threads. Waits for the file named by argument 1 in between.
program common_waits
  implicit none
  integer, parameter :: n = 50 * 1024 * 1024
  integer(kind=8) :: words(n), total
  common /large/ words
  character(len=4096) :: name
  logical :: there
  integer :: i

  !$omp parallel do
  do i = 1, n
    words(i) = ieor(int(i, 8) * 6364136223846793005_8, ishft(int(i, 8) * 40503_8, 20))
  end do
  !$omp end parallel do
  call get_command_argument(1, name)
  print *, 'ready'
  flush (6)
  there = .false.
  do while (.not. there)
    call sleep(1)
    inquire (file=trim(name), exist=there)
  end do
  total = 0
  !$omp parallel do reduction(ieor:total)
  do i = 1, n
    total = ieor(total, words(i) * (2_8 * i + 1))
  end do
  !$omp end parallel do
  print *, total
end program common_waits
