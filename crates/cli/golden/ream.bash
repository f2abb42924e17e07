# Completions of ream for bash, made from the table of options by "ream completions bash".
_ream() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}"
    local command="" options="--help --version" words="run doctor setup status add-store compare mark unmark serve keys noise bench completions man help" index word
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        word="${COMP_WORDS[index]}"
        if [[ -z $command ]]; then
            [[ $word == -* ]] || command="$word"
            continue
        fi
        [[ $command == run || $command == compare ]] || continue
        # The program begins after its options: from there on its own completions are used.
        case "$word" in
        --) ((index++)) ;;
        --bloat | --clients | --drain | --drop-received | --engine | --fetch | --group | --hugetlb | --hugetlb-1g | --io | --key | --listen | --log | --memlock | --memory | --metrics | --next | --on-block | --on-run | --pager-cpus | --pages | --quota | --ranks-at-once | --replicas | --runs | --seconds | --server | --servers | --spill | --stdin | --store | --store-deadline | --store-limit | --swap-protocol | --threshold | --with | -m | -s) ((index++)); [[ ${COMP_WORDS[index]} != = ]] || ((index++)); continue ;;
        = | -*) [[ ${COMP_WORDS[index + 1]} != = ]] || ((index += 2)); continue ;;
        esac
        declare -F _command_offset >/dev/null && _command_offset "$index"
        return
    done
    case "$command" in
        run) options="--memory -m --store -s --store-limit --encrypt --replicas --spill --parity --store-deadline --swap-protocol --key --servers --insecure --threshold --summary --summary= --log --engine --io --fetch --pages --prefault --prefault= --lock --lock= --bloat --no-exec-inherit --ranks-at-once --next --on-block --on-run --drop-received --pager-cpus --help -h" words="" ;;
        doctor) options="--store -s --replicas --spill --parity --key --servers --insecure --pages --json --help -h" words="" ;;
        setup) options="--dry-run --undo --hugetlb --hugetlb-1g --memlock --group --no-userfaultfd --no-thp --no-sysctl --no-binfmt --help -h" words="" ;;
        status) options="--key --servers --insecure --server --json --all --help -h" words="" ;;
        add-store) options="--help -h" words="" ;;
        compare) options="--runs --seconds --with --stdin --save --json --help -h" words="" ;;
        mark) options="--memory -m --pages --prefault --prefault= --lock --lock= --show --help -h" words="" ;;
        unmark) options="--help -h" words="" ;;
        serve) options="--memory -m --key --insecure --listen --clients --quota --metrics --drain --pages --help -h" words="" ;;
        keys) options="--help -h" words="" ;;
        noise) options="--help -h" words="" ;;
        bench) options="--help -h" words="all compare report paging fits malloc inside pages mpi remote coverage" ;;
        completions) options="--help -h" words="bash zsh fish" ;;
        man) options="--help -h" words="" ;;
        help) options="--help -h" words="run doctor setup status add-store compare mark unmark serve keys noise bench completions man" ;;
    esac
    [[ $current != = ]] || current=""
    [[ $previous != = ]] || previous="${COMP_WORDS[COMP_CWORD - 2]}"
    case "$previous" in
        --memory|-m) mapfile -t COMPREPLY < <(compgen -W "auto 25% 50% 75% 90% 1G 4G 16G 64G" -- "$current"); return ;;
        --store|-s) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
        --store-limit) COMPREPLY=(); return ;;
        --replicas) COMPREPLY=(); return ;;
        --spill) COMPREPLY=(); return ;;
        --store-deadline) COMPREPLY=(); return ;;
        --swap-protocol) mapfile -t COMPREPLY < <(compgen -W "ream r3 r58 r77" -- "$current"); return ;;
        --key) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        --servers) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        --threshold) COMPREPLY=(); return ;;
        --log) mapfile -t COMPREPLY < <(compgen -W "error warn info debug" -- "$current"); return ;;
        --engine) mapfile -t COMPREPLY < <(compgen -W "auto move copy usermode copy-always" -- "$current"); return ;;
        --io) mapfile -t COMPREPLY < <(compgen -W "auto uring threads" -- "$current"); return ;;
        --fetch) mapfile -t COMPREPLY < <(compgen -W "auto lazy aggressive" -- "$current"); return ;;
        --pages) mapfile -t COMPREPLY < <(compgen -W "auto small 64k huge hugetlb 1g" -- "$current"); return ;;
        --bloat) COMPREPLY=(); return ;;
        --ranks-at-once) COMPREPLY=(); return ;;
        --next) mapfile -t COMPREPLY < <(compgen -W "vrss fifo lifo pending" -- "$current"); return ;;
        --on-block) mapfile -t COMPREPLY < <(compgen -W "auto lazy aggressive" -- "$current"); return ;;
        --on-run) mapfile -t COMPREPLY < <(compgen -W "auto lazy aggressive" -- "$current"); return ;;
        --drop-received) mapfile -t COMPREPLY < <(compgen -W "no yes" -- "$current"); return ;;
        --pager-cpus) COMPREPLY=(); return ;;
        --hugetlb) COMPREPLY=(); return ;;
        --hugetlb-1g) COMPREPLY=(); return ;;
        --memlock) COMPREPLY=(); return ;;
        --group) COMPREPLY=(); return ;;
        --server) COMPREPLY=(); return ;;
        --runs) COMPREPLY=(); return ;;
        --seconds) COMPREPLY=(); return ;;
        --with) COMPREPLY=(); return ;;
        --stdin) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        --listen) COMPREPLY=(); return ;;
        --clients) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        --quota) COMPREPLY=(); return ;;
        --metrics) COMPREPLY=(); return ;;
        --drain) COMPREPLY=(); return ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
    elif [[ $command == run || $command == compare ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    fi
}
complete -F _ream ream
