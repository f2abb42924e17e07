! Heat in a cube: a seven-point stencil on all processors, over three arrays that together are larger than the RAM that
! they may use: one ALLOCATABLE, one pointer that ream_allocate made, one in COMMON. All three are paged.
!
!     gfortran -O2 -fopenmp ream.f90 stencil.f90 -o stencil $(pkg-config --libs ream)
!     ream run --memory 64M -- ./stencil
program stencil
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use ream
  implicit none
  integer, parameter :: n = 224, steps = 3
  real(real64) :: conductivity(n, n, n)
  common /material/ conductivity
  real(real64), allocatable :: old(:, :, :)
  real(real64), pointer, contiguous :: new(:, :, :)
  real(real64) :: total
  type(ream_state) :: state
  integer :: i, j, k, step

  call ream_phase('fill')
  allocate (old(n, n, n))
  call ream_allocate(new, [n, n, n], name='new temperatures')
  call ream_advise(old, ream_sequential)
!$omp parallel do private(i, j)
  do k = 1, n
    do j = 1, n
      do i = 1, n
        old(i, j, k) = real(mod(i * 7 + j * 5 + k * 3, 101), real64)
        conductivity(i, j, k) = 0.05_real64 + 0.001_real64 * real(mod(i + j + k, 32), real64)
      end do
    end do
  end do

  call ream_phase('steps')
  do step = 1, steps
!$omp parallel do private(i, j)
    do k = 1, n
      do j = 1, n
        do i = 1, n
          if (min(i, j, k) == 1 .or. max(i, j, k) == n) then
            new(i, j, k) = old(i, j, k)
          else
            new(i, j, k) = old(i, j, k) + conductivity(i, j, k) * (old(i - 1, j, k) + old(i + 1, j, k) &
              + old(i, j - 1, k) + old(i, j + 1, k) + old(i, j, k - 1) + old(i, j, k + 1) - 6 * old(i, j, k))
          end if
        end do
      end do
    end do
!$omp parallel do
    do k = 1, n
      old(:, :, k) = new(:, :, k)
    end do
  end do

  ! In order, so that the sum is the same whatever the number of threads.
  total = 0
  do k = 1, n
    total = total + sum(old(:, :, k))
  end do
  print '(a,i0,a,f0.3)', 'cells ', size(old), ', heat ', total
  call ream_phase()
  state = ream_status()
  if (state%session) print '(a,i0,a)', 'a budget of ', state%budget / 2_int64**20, ' MiB'
  call ream_deallocate(new)
end program stencil
