#!/bin/bash
# Makes the functions that stand for those of MPI, from calls.txt and the prototypes in the site's mpi.h:
#   generate.sh MPICC           the functions, in C
#   generate.sh MPICC --check   names every function of mpi.h that calls.txt does not or gives another kind than it has: those with
#                               a rank "dest" send, and are counted. Fails if there is one
set -euo pipefail

compiler=${1:?usage: generate.sh MPICC [--check]}
list=$(dirname "$0")/calls.txt

# One prototype a line, without what the compiler adds: NAME(PARAMETERS)
prototypes() {
    printf '#include <mpi.h>\n' | "$compiler" -E -P -x c - | tr '\n' ' ' | awk '
        BEGIN { RS = ";" }
        match($0, /[^A-Za-z0-9_]MPI_[A-Z][A-Za-z0-9_]*[ ]*\(/) && !/typedef/ {
            start = RSTART + 1
            rest = substr($0, start)
            before = substr($0, 1, start - 1)
            if (before !~ /int[ ]*$/) next
            depth = 0
            for (i = 1; i <= length(rest); i++) {
                c = substr(rest, i, 1)
                if (c == "(") depth++
                if (c == ")" && --depth == 0) break
            }
            print substr(rest, 1, i)
        }' | sed 's/ *( */(/; s/[ ][ ]*/ /g' | sort -u
}

if [[ ${2:-} == --check ]]; then
    prototypes | awk -v list="$list" '
        BEGIN {
            while ((getline line < list) > 0) {
                if (line ~ /^#/ || line ~ /^$/) continue
                split(line, word, " ")
                pattern = word[2]
                gsub(/\*/, ".*", pattern)
                patterns[++count] = "^MPI_" pattern "$"
                if (word[1] ~ /^(send|post|keep)$/) counted["MPI_" word[2]] = 1
            }
        }
        {
            name = $0
            sub(/\(.*/, "", name)
            sub(/_c$/, "", name)
            # What has a rank "dest" sends a message there. MPICH calls the source of Precv_init so.
            sends = name != "MPI_Precv_init" && $0 ~ /[ *]dest[,)]/ && $0 ~ /[ *]comm[,)]/
            if (sends != (name in counted)) {
                print (sends ? "sends, and is not counted: " : "counted, and does not send: ") name
                missing = 1
            }
            for (i = 1; i <= count; i++) if (name ~ patterns[i]) next
            print "not in calls.txt: " name
            missing = 1
        }
        END { if (NR < 300) { print "only " NR " functions in mpi.h"; missing = 1 } exit missing }'
    exit
fi

prototypes | awk -v list="$list" '
    BEGIN {
        while ((getline line < list) > 0) {
            split(line, word, " ")
            if (line ~ /^#/ || word[1] == "no") continue
            kind["MPI_" word[2]] = word[1]
        }
    }
    {
        open = index($0, "(")
        name = substr($0, 1, open - 1)
        base = name
        sub(/_c$/, "", base)
        if (!(base in kind)) next
        inner = substr($0, open + 1, length($0) - open - 1)
        count = inner ~ /^ *void *$/ ? 0 : split(inner, parts, ",")
        params = arguments = answer = ""
        for (i = 1; i <= count; i++) {
            part = parts[i]
            bare = part
            sub(/[ ]*\[.*$/, "", bare)
            match(bare, /[A-Za-z_0-9]+[ ]*$/)
            argument = substr(bare, RSTART)
            gsub(/ /, "", argument)
            # The names that calls.txt means, whatever this header calls them.
            if (argument == "flag" || argument == "outcount") answer = argument
            params = params (i > 1 ? "," : "") part
            arguments = arguments (i > 1 ? ", " : "") argument
        }
        if (count == 0) params = "void"
        what = kind[base]
        # Of those with large counts nothing is dropped.
        if (name != base && what == "over") what = "wait"
        line = toupper(what) "(" substr(name, 5) ", (" params "), (" arguments ")"
        if (what == "ask") line = line ", " answer
        print line ")"
    }'
