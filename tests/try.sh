#!/bin/bash
# make try: the main job on real data. A numpy program counts Debian's own file index. First with all the memory it
# wants, then limited to a fifth of that without Ream, then with Ream: the same result.
set -euo pipefail
cd "$(dirname "$0")/.."

ream=${REAM_BIN:-${CARGO_TARGET_DIR:-target}/release/ream}
program=tests/try/index.py
python=/usr/bin/python3
# What a process needs beside the data that Ream manages: code, libraries, stacks, page tables.
beside=96
# One thread each, and no arenas of a size that depends on the number of processors.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 LC_ALL=C.UTF-8

say() { printf '\n%s\n' "$*"; }
stop() { printf 'try: %s\n' "$*" >&2; exit 1; }
seconds() { echo "$((($(date +%s%N) - $1) / 100000000))" | sed 's/.$/.&/; s/^\./0./'; }

[[ -x $ream ]] || stop "$ream is not there; build it first: make"
"$python" -c 'import numpy' 2>/dev/null || stop "needs the Debian packages python3 and python3-numpy"

base=${REAM_STORE:-/var/tmp}
work=$(TMPDIR=$base mktemp -d)
group=
# shellcheck disable=SC2317  # reached by the trap
clean() {
    if [[ -n $group ]]; then
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            rmdir "$group" 2>/dev/null && break
            sleep 0.2
        done
    fi
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP

# The largest file index that apt has; fails when there is none.
find_contents() {
    apt-get indextargets --format "\$(FILENAME)" 'Created-By: Contents-deb' 2>/dev/null |
        while read -r file; do
            if [[ -s $file ]]; then stat -c '%s %n' "$file"; fi
        done | sort -n | tail -1 | cut -d' ' -f2- | grep .
}

make_index() {
    local file helper=/usr/lib/apt/apt-helper
    if [[ -n ${REAM_TRY_INDEX:-} ]]; then
        cp "$REAM_TRY_INDEX" "$work/index"
        echo "$REAM_TRY_INDEX"
        return
    fi
    if command -v apt-get >/dev/null && [[ -x $helper ]]; then
        if ! find_contents >/dev/null && [[ $EUID -eq 0 ]]; then
            say "Installing apt-file, which brings Debian's file index"
            (DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq apt-file || apt-get update -qq &&
                DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq apt-file) >/dev/null 2>&1 || true
            apt-get update -qq >/dev/null 2>&1 || true
        fi
        if file=$(find_contents); then
            "$helper" cat-file "$file" >"$work/index"
            echo "Debian's file index, $(basename "$file")"
            return
        fi
    fi
    # The same kind of index, of this machine's own files.
    find / -xdev -type f -printf '%P          %g/%u\n' 2>/dev/null >"$work/index" || true
    echo "an index of this machine's own files (the package apt-file would bring a larger one)"
}

say "The data:"
make_index
lines=$(wc -l <"$work/index")
echo "$lines lines, $(($(stat -c %s "$work/index") >> 20)) MiB"
[[ $lines -gt 10000 ]] || stop "too few files to make an index worth paging"

# run RESULT COMMAND...: sets `status` and `took`.
run() {
    local result=$1 begun
    shift
    begun=$(date +%s%N)
    status=0
    "$@" >"$work/$result" || status=$?
    took=$(seconds "$begun")
}

say "1. With all the memory it wants: python3 $program index"
run unlimited "$python" "$program" "$work/index" "$work/peak"
[[ $status -eq 0 ]] || stop "the program itself fails"
peak=$(<"$work/peak")
unlimited=$took
memory=$((peak / 5))
[[ $memory -ge 24 ]] || memory=24
[[ $peak -ge $((4 * memory)) ]] || stop "the program needs $peak MiB only"
allowed=$((memory + beside))

limit_by_group() {
    local name=ream-try-$$
    [[ $EUID -eq 0 ]] || return 1
    if [[ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]]; then
        group=/sys/fs/cgroup/memory/$name
        mkdir "$group" 2>/dev/null && echo "${allowed}M" >"$group/memory.limit_in_bytes"
    elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
        group=/sys/fs/cgroup/$name
        mkdir "$group" 2>/dev/null && echo "${allowed}M" >"$group/memory.max"
    else
        return 1
    fi
}

if limit_by_group; then
    # shellcheck disable=SC2016  # expanded by the shell that is started
    limited=(bash -c 'echo 0 >"$0/cgroup.procs" && exec "$@"' "$group")
    how="a memory cgroup of $allowed MiB"
    inside=("${limited[@]}")
else
    group=
    # An ordinary user can limit what is allocated, not what is resident; Ream's run gets its budget and no such limit.
    # shellcheck disable=SC2016
    limited=(bash -c 'ulimit -d "$0" && exec "$@"' "$((allowed * 1024))")
    how="ulimit -d, $allowed MiB"
    inside=()
fi

patience=60
attempt() {
    run limited timeout --signal=KILL "$1" "${limited[@]}" "$python" "$program" "$work/index" 2>"$work/errors"
    grep -v '^Traceback' "$work/errors" | tail -3 || true
}
say "2. Without Ream, in $how ($memory MiB for its data, $beside MiB for all else)"
attempt $patience
[[ $status -ne 0 ]] || stop "it finished; there is nothing to show here"
plain="failed with status $status after $took s"
[[ $status -ne 137 ]] || plain="killed after $took s"
finished_late() { awk -v took="$took" -v patience="$1" 'BEGIN { exit !(took >= patience) }'; }
crawling=no
if finished_late $patience; then
    crawling=yes
    plain="not finished after $took s"
fi
echo "   $plain"

say "3. With Ream${inside:+, in the same cgroup}: ream run --memory ${memory}M -- python3 $program index"
run paged ${inside[@]+"${inside[@]}"} "$ream" run --memory "${memory}M" --store "$work" --summary -- \
    "$python" "$program" "$work/index"
[[ $status -eq 0 ]] || stop "the run under Ream failed with status $status"
cmp "$work/unlimited" "$work/paged" || stop "the run under Ream has another result"
paged=$took

# A plain run that crawls gets three times as long as Ream took.
three=$(awk -v paged="$paged" 'BEGIN { printf "%d", 3 * paged + 1 }')
if [[ $crawling == yes && $three -gt $patience ]]; then
    say "Without Ream once more, for three times as long as Ream took: $three s"
    attempt "$three"
    if [[ $status -eq 0 ]]; then plain="finished after $took s"; else plain="not finished after $took s"; fi
fi

say "The result (the same with and without Ream):"
cat "$work/paged"
say "In short:"
printf '  %-44s %s\n' \
    "all the memory it wants ($peak MiB)" "$unlimited s" \
    "$memory MiB without Ream" "$plain" \
    "$memory MiB with Ream" "$paged s, the same result"
