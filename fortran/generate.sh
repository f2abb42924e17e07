#!/bin/bash
# Writes the module ream, whole, on standard output: ream.f90.in, with a procedure for each kind and rank of an array,
# which Fortran cannot say once. Argument: the version.
set -euo pipefail

version=$1
input=$(dirname "$0")/ream.f90.in

# A letter and a number for each kind, its type, and its bytes.
kinds=(
    i1:integer\(int8\):1 i2:integer\(int16\):2 i4:integer\(int32\):4 i8:integer\(int64\):8
    r4:real\(real32\):4 r8:real\(real64\):8 c4:complex\(real32\):8 c8:complex\(real64\):16 l4:logical\(int32\):4
)

# Calls a function with suffix, type, bytes and rank for each kind and rank; for advice and pins, which the rank is nothing
# to, for each kind.
each() {
    local kind rank name type bytes
    for kind in "${kinds[@]}"; do
        IFS=: read -r name type bytes <<<"$kind"
        case "$*" in
        *advise* | *pin*) "$@" "$name" "$type" "$bytes" ;;
        *)
            for rank in 1 2 3 4 5 6 7; do
                "$@" "${name}_$rank" "$type" "$bytes" "$rank"
            done
            ;;
        esac
    done
}

colons() {
    local all=":,:,:,:,:,:,:"
    echo "${all:0:$(($1 * 2 - 1))}"
}

allocate() {
    local extents=$1 suffix=$2 type=$3 bytes=$4 rank=$5
    cat <<END
  subroutine allocate_${suffix}_$extents(array, shape, name, page_size, resident, pinned, stat)
    $type, pointer, intent(out) :: array($(colons "$rank"))
    integer($extents), intent(in) :: shape($rank)
    character(len=*), intent(in), optional :: name
    integer, intent(in), optional :: page_size
    logical, intent(in), optional :: resident, pinned
    integer, intent(out), optional :: stat
    type(c_ptr) :: block
    integer :: code
    call get(int(shape, int64), $bytes, name, page_size, resident, pinned, block, code)
    nullify (array)
    if (code == 0) call c_f_pointer(block, array, shape)
    call finish(code, 'ream_allocate', stat)
  end subroutine allocate_${suffix}_$extents

END
}

free() {
    local suffix=$1 type=$2 rank=$4
    cat <<END
  subroutine free_$suffix(array, stat)
    $type, pointer, intent(inout) :: array($(colons "$rank"))
    integer, intent(out), optional :: stat
    integer :: code
    code = invalid
    if (associated(array)) code = c_ream_free(c_loc(array))
    if (code == 0) nullify (array)
    call finish(code, 'ream_deallocate', stat)
  end subroutine free_$suffix

END
}

advise() {
    local suffix=$1 type=$2 bytes=$3
    cat <<END
  subroutine advise_$suffix(array, advice, stat)
    $type, dimension(..), intent(in), target :: array
    integer, intent(in) :: advice
    integer, intent(out), optional :: stat
    integer(int64) :: bytes
    bytes = 0
    if (is_contiguous(array)) bytes = size(array, kind=int64) * $bytes
    call advise_range(c_loc(array), bytes, advice, stat)
  end subroutine advise_$suffix

END
}

# Arguments: pin or unpin first.
pins() {
    local what=$1 suffix=$2 type=$3 bytes=$4
    cat <<END
  subroutine ${what}_$suffix(array, stat)
    $type, dimension(..), intent(in), target :: array
    integer, intent(out), optional :: stat
    integer(int64) :: bytes
    bytes = 0
    if (is_contiguous(array)) bytes = size(array, kind=int64) * $bytes
    call ${what}_range(c_loc(array), bytes, stat)
  end subroutine ${what}_$suffix

END
}

pin() {
    pins pin "$@"
}

unpin() {
    pins unpin "$@"
}

interface() {
    local what=$1 after=$2 suffix=$3
    echo "    module procedure ${what}_$suffix$after"
}

while IFS= read -r line; do
    read -r _ what extents <<<"${line//@/}" || true
    case $line in
    *@INTERFACES*) each interface "$what" "${extents:+_$extents}" ;;
    *@PROCEDURES*) each "$what" ${extents:+"$extents"} ;;
    *) echo "${line//@VERSION@/$version}" ;;
    esac
done <"$input"
