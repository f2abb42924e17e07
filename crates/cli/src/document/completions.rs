//! Completions for bash, zsh and fish.

use super::shown;
use ream_options::{COMMANDS, Kind, PAGES, Spec, takes_program};

/// The completions for a shell, if it is one that is known.
pub fn for_shell(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash()),
        "zsh" => Some(zsh()),
        "fish" => Some(fish()),
        _ => None,
    }
}

/// Amounts that are offered for `--memory`.
const AMOUNTS: &str = "auto 25% 50% 75% 90% 1G 4G 16G 64G";

fn names() -> String {
    COMMANDS.iter().map(|command| command.name).collect::<Vec<_>>().join(" ")
}

/// How values that are no plain text are completed: words, files or directories.
enum Values {
    Words(String),
    Files,
    Directories,
    None,
}

fn values(spec: &Spec) -> Values {
    match spec.kind {
        Kind::Choice(words) | Kind::OptionalText(words) => Values::Words(words.join(" ")),
        Kind::Pages => Values::Words(PAGES.join(" ")),
        Kind::Memory => Values::Words(AMOUNTS.to_owned()),
        Kind::Log => Values::Words(ream_options::LEVELS.join(" ")),
        Kind::Directories => Values::Directories,
        Kind::OptionalFile | Kind::File => Values::Files,
        _ => Values::None,
    }
}

/// Whether a value may follow, after an equals sign only.
fn optional(spec: &Spec) -> bool {
    matches!(spec.kind, Kind::OptionalFile | Kind::OptionalText(_))
}

fn takes_word(spec: &Spec) -> bool {
    !matches!(spec.kind, Kind::Switch | Kind::OptionalFile | Kind::OptionalText(_))
}

fn bash() -> String {
    let mut options = String::new();
    let mut with_value = String::new();
    for command in COMMANDS {
        let flags: Vec<_> = shown(command.name)
            .flat_map(|spec| {
                let equals = optional(spec).then(|| format!("--{}=", spec.name));
                [Some(format!("--{}", spec.name)), equals, spec.short.map(|letter| format!("-{letter}"))]
            })
            .flatten()
            .collect();
        options += &format!(
            "        {}) options=\"{}\" words=\"{}\" ;;\n",
            command.name,
            flags.join(" "),
            command.words.join(" ")
        );
    }
    let mut seen = Vec::new();
    for spec in COMMANDS.iter().flat_map(|command| shown(command.name)).filter(|spec| takes_word(spec)) {
        if seen.contains(&spec.name) {
            continue;
        }
        seen.push(spec.name);
        let flag = spec.short.map_or_else(String::new, |letter| format!("|-{letter}"));
        let reply = match values(spec) {
            Values::Words(words) => format!("mapfile -t COMPREPLY < <(compgen -W \"{words}\" -- \"$current\")"),
            Values::Directories => "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$current\")".into(),
            Values::Files => "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$current\")".into(),
            Values::None => "COMPREPLY=()".into(),
        };
        with_value += &format!("        --{}{flag}) {reply}; return ;;\n", spec.name);
    }
    let with_word: Vec<_> = COMMANDS
        .iter()
        .flat_map(|command| shown(command.name))
        .filter(|spec| takes_word(spec))
        .flat_map(|spec| [Some(format!("--{}", spec.name)), spec.short.map(|letter| format!("-{letter}"))])
        .flatten()
        .collect();
    let mut with_word = with_word;
    with_word.sort();
    with_word.dedup();
    format!(
        "# Completions of ream for bash, made from the table of options by \"ream completions bash\".\n\
         _ream() {{\n\
         \x20   local current=\"${{COMP_WORDS[COMP_CWORD]}}\" previous=\"${{COMP_WORDS[COMP_CWORD - 1]}}\"\n\
         \x20   local command=\"\" options=\"--help --version\" words=\"{names}\" index word\n\
         \x20   COMPREPLY=()\n\
         \x20   for ((index = 1; index < COMP_CWORD; index++)); do\n\
         \x20       word=\"${{COMP_WORDS[index]}}\"\n\
         \x20       if [[ -z $command ]]; then\n\
         \x20           [[ $word == -* ]] || command=\"$word\"\n\
         \x20           continue\n\
         \x20       fi\n\
         \x20       [[ $command == run || $command == compare ]] || continue\n\
         \x20       # The program begins after its options: from there on its own completions are used.\n\
         \x20       case \"$word\" in\n\
         \x20       --) ((index++)) ;;\n\
         \x20       {with_word}) ((index++)); [[ ${{COMP_WORDS[index]}} != = ]] || ((index++)); continue ;;\n\
         \x20       = | -*) [[ ${{COMP_WORDS[index + 1]}} != = ]] || ((index += 2)); continue ;;\n\
         \x20       esac\n\
         \x20       declare -F _command_offset >/dev/null && _command_offset \"$index\"\n\
         \x20       return\n\
         \x20   done\n\
         \x20   case \"$command\" in\n{options}    esac\n\
         \x20   [[ $current != = ]] || current=\"\"\n\
         \x20   [[ $previous != = ]] || previous=\"${{COMP_WORDS[COMP_CWORD - 2]}}\"\n\
         \x20   case \"$previous\" in\n{with_value}    esac\n\
         \x20   if [[ $current == -* ]]; then\n\
         \x20       mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n\
         \x20   elif [[ $command == run || $command == compare ]]; then\n\
         \x20       mapfile -t COMPREPLY < <(compgen -c -- \"$current\")\n\
         \x20   else\n\
         \x20       mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n\
         \x20   fi\n\
         }}\n\
         complete -F _ream ream\n",
        names = names(),
        with_word = with_word.join(" | "),
    )
}

fn zsh() -> String {
    let mut text = String::from(
        "#compdef ream\n# Completions of ream for zsh, made from the table of options by \"ream completions zsh\".\n\n\
         _ream() {\n    local context state state_descr line\n    typeset -A opt_args\n    local -a commands=(\n",
    );
    for command in COMMANDS {
        text += &format!("        '{}:{}'\n", command.name, command.help);
    }
    text += "    )\n    _arguments -C '(-h --help)'{-h,--help}'[print help]' '(-V --version)'{-V,--version}'[print the \
             version]' '1: :->command' '*:: :->rest'\n    case $state in\n    command) _describe command commands \
             ;;\n    rest)\n        case $line[1] in\n";
    for command in COMMANDS {
        text += &format!("        {})\n            _arguments -S", command.name);
        for spec in shown(command.name) {
            let help = spec.help.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]");
            let values = match values(spec) {
                Values::Words(words) if optional(spec) => format!("::{}:({words})", spec.value.to_lowercase()),
                Values::Words(words) => format!(":{}:({words})", spec.value.to_lowercase().replace(':', "\\:")),
                Values::Directories => format!(":{}:_directories", spec.value.to_lowercase()),
                Values::Files if takes_word(spec) => format!(":{}:_files", spec.value.to_lowercase()),
                Values::Files => format!("::{}:_files", spec.value.to_lowercase()),
                Values::None if takes_word(spec) => format!(":{}: ", spec.value.to_lowercase()),
                Values::None => String::new(),
            };
            let again = if matches!(spec.kind, Kind::Directories | Kind::Texts) { "*" } else { "" };
            let equals = match spec.kind {
                Kind::Switch => "",
                Kind::OptionalFile | Kind::OptionalText(_) => "=-",
                _ => "=",
            };
            text += " \\\n                ";
            text += &match spec.short {
                Some(letter) if takes_word(spec) => {
                    format!("'{again}-{letter}[{help}]{values}' '{again}--{}{equals}[{help}]{values}'", spec.name)
                }
                Some(letter) => format!("'(-{letter} --{0})'{{-{letter},--{0}}}'[{help}]{values}'", spec.name),
                None => format!("'{again}--{}{equals}[{help}]{values}'", spec.name),
            };
        }
        text += &match command.name {
            name if takes_program(name) => " \\\n                '*::program:_normal'\n            ;;\n".to_owned(),
            _ if command.words.is_empty() => "\n            ;;\n".to_owned(),
            _ => format!(" \\\n                '1:word:({})'\n            ;;\n", command.words.join(" ")),
        };
    }
    text + "        esac\n        ;;\n    esac\n}\n\n_ream \"$@\"\n"
}

fn fish() -> String {
    let mut text = format!(
        "# Completions of ream for fish, made from the table of options by \"ream completions fish\".\n\
         complete -c ream -f\n\
         set -l commands {}\n\
         complete -c ream -n \"not __fish_seen_subcommand_from $commands\" -s h -l help -d 'print help'\n\
         complete -c ream -n \"not __fish_seen_subcommand_from $commands\" -s V -l version -d 'print the version'\n",
        names()
    );
    for command in COMMANDS {
        text += &format!(
            "complete -c ream -n \"not __fish_seen_subcommand_from $commands\" -a {} -d '{}'\n",
            command.name, command.help
        );
    }
    for command in COMMANDS {
        let condition = format!("-n \"__fish_seen_subcommand_from {}\"", command.name);
        for spec in shown(command.name) {
            let short = spec.short.map_or_else(String::new, |letter| format!(" -s {letter}"));
            let values = match values(spec) {
                Values::Words(words) => format!(" -x -a '{words}'"),
                Values::Directories => " -x -a '(__fish_complete_directories)'".into(),
                Values::Files => " -F".into(),
                Values::None if takes_word(spec) => " -x".into(),
                Values::None => String::new(),
            };
            let help = spec.help.replace('\'', "\\'");
            text += &format!("complete -c ream {condition}{short} -l {}{values} -d '{help}'\n", spec.name);
        }
        match command.name {
            name if takes_program(name) => {
                text += &format!("complete -c ream {condition} -x -a '(__fish_complete_subcommand --fcs-skip=2)'\n");
            }
            _ if command.words.is_empty() => {}
            _ => text += &format!("complete -c ream {condition} -a '{}'\n", command.words.join(" ")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_offers_every_shown_option() {
        for shell in ["bash", "zsh", "fish"] {
            let text = for_shell(shell).unwrap();
            for spec in COMMANDS.iter().flat_map(|command| shown(command.name)) {
                let flag = if shell == "fish" { format!("-l {}", spec.name) } else { format!("--{}", spec.name) };
                assert!(text.contains(&flag), "{shell}: {flag}");
            }
            assert!(!text.contains("bloat-age"), "{shell}");
        }
        assert!(for_shell("tcsh").is_none());
    }
}
