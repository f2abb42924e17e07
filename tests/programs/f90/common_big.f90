! A COMMON block and a module array of 128 MiB each and an ALLOCATEd one, filled and summed by OpenMP threads.
module held
  implicit none
  integer, parameter :: n = 16 * 1024 * 1024
  integer(kind=8), save :: kept(n)
end module held

program common_big
  use held
  implicit none
  integer(kind=8) :: shared_words(n)
  common /large/ shared_words
  integer(kind=8), allocatable :: fresh(:)
  integer(kind=8) :: total, wrong
  integer :: i, pass

  allocate (fresh(n / 2))
  !$omp parallel do
  do i = 1, n
    shared_words(i) = ieor(int(i, 8) * 6364136223846793005_8, ishft(int(i, 8) * 40503_8, 20))
    kept(i) = shared_words(i) + i
    if (i <= n / 2) fresh(i) = shared_words(i) - i
  end do
  !$omp end parallel do
  wrong = 0
  do pass = 1, 2
    !$omp parallel do reduction(+:wrong)
    do i = n, 1, -1
      if (kept(i) - shared_words(i) /= i) wrong = wrong + 1
      if (i <= n / 2) then
        if (shared_words(i) - fresh(i) /= i) wrong = wrong + 1
      end if
    end do
    !$omp end parallel do
  end do
  total = 0
  !$omp parallel do reduction(ieor:total)
  do i = 1, n
    total = ieor(total, shared_words(i) * (2_8 * i + 1))
  end do
  !$omp end parallel do
  print '(a, i0, a, z16.16)', 'wrong ', wrong, ' total ', total
  deallocate (fresh)
end program common_big
