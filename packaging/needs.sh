#!/bin/bash
# Makes sure that what a target of the Makefile needs is there: installs Debian's packages when root, and otherwise
# names every missing one in a single message and stops.
set -euo pipefail

# What stands for a package (a command, or a file), and the package.
build=(cc:gcc /usr/include/stdlib.h:libc6-dev make:make)
declare -A needs=(
    [check]="${build[*]} g++:g++ gfortran:gfortran git:git shellcheck:shellcheck gdb:gdb strace:strace valgrind:valgrind perl:perl sqlite3:sqlite3
        redis-server:redis-server R:r-base-core /usr/lib/R/site-library/rlang:r-cran-rlang
        /usr/lib/R/site-library/data.table:r-cran-data.table /usr/bin/python3:python3
        /usr/lib/python3/dist-packages/numpy:python3-numpy setpriv:util-linux /usr/lib/postgresql:postgresql
        /usr/sbin/mkfs.ext4:e2fsprogs /usr/sbin/ip:iproute2 iperf3:iperf3 /usr/include/fftw3.h:libfftw3-dev node:nodejs javac:default-jdk-headless chromium:chromium
        pkg-config:pkgconf cmake:cmake
        mpirun.openmpi:openmpi-bin mpicc.openmpi:libopenmpi-dev mpiexec.mpich:mpich mpicc.mpich:libmpich-dev /usr/include/metis.h:libmetis-dev
        /usr/lib/python3/dist-packages/pip:python3-pip /usr/lib/python3/dist-packages/wheel:python3-wheel"
    [try]="${build[*]} /usr/bin/python3:python3 /usr/lib/python3/dist-packages/numpy:python3-numpy"
    [bench]="${build[*]}"
)

target=${1:-}
if [[ -z ${needs[$target]:-} ]]; then
    echo "usage: packaging/needs.sh check|try|bench" >&2
    exit 2
fi

# The packages whose sign is not there.
missing() {
    local need sign
    for need in ${needs[$target]}; do
        sign=${need%:*}
        case $sign in
        /*) [[ -e $sign ]] || echo "${need##*:}" ;;
        *) command -v "$sign" >/dev/null || echo "${need##*:}" ;;
        esac
    done
}

absent=()
command -v cargo >/dev/null || absent+=("a Rust toolchain")
mapfile -t packages < <(missing)
if [[ ${#packages[@]} -gt 0 && $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
    echo "needs: installing ${packages[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get install --yes --no-install-recommends "${packages[@]}" >&2 ||
        { apt-get update >&2 && apt-get install --yes --no-install-recommends "${packages[@]}" >&2; } || true
    mapfile -t packages < <(missing)
fi
absent+=("${packages[@]}")
if [[ ${#absent[@]} -gt 0 ]]; then
    list=$(printf ', %s' "${absent[@]}")
    echo "needs: make $target needs, and does not find: ${list:2}" >&2
    if [[ ${#packages[@]} -gt 0 ]]; then
        echo "needs: on Debian or Ubuntu: sudo apt-get install ${packages[*]}" >&2
    fi
    exit 1
fi
