//! The man page ream(1), in roff.

use super::{Item, STATUSES, VARIABLES, flag, help::also, shown};
use ream_options::COMMANDS;

/// The page.
pub fn page() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        ".\\\" Made from the table of options by \"ream man\".\n.TH REAM 1 \"\" \"ream {version}\" \"User Commands\"\n"
    );
    text += ".SH NAME\nream \\- run unmodified programs on more memory than there is RAM\n.SH SYNOPSIS\n";
    for command in COMMANDS {
        let usage = if command.usage.is_empty() { String::new() } else { escape(command.usage) + "\n" };
        text += &format!(".B ream {}\n{usage}.br\n", command.name);
    }
    text += ".SH DESCRIPTION\n";
    text += "ream runs programs, as they are, so that their data take no more RAM than they are given. What does not \
             fit is paged to a file on a local disk at the speed of that disk. No root, no recompiling and no kernel \
             patch are needed.\n";
    text += ".SH COMMANDS\n";
    for command in COMMANDS {
        text += &format!(".SS ream {} {}\n", command.name, escape(command.usage)).replace(" \n", "\n");
        for (number, paragraph) in command.long.split("\n\n").enumerate() {
            text += if number == 0 { "" } else { ".PP\n" };
            text += &format!("{}\n", escape(paragraph));
        }
        for spec in shown(command.name).filter(|spec| spec.name != "help") {
            text += &format!(".TP\n.B {}\n{}\n", escape(&flag(spec)), escape(spec.long));
            let also = also(spec);
            if !also.is_empty() {
                text += &format!(".br\n{}\n", escape(&also));
            }
        }
    }
    text += ".SH SIZES\nA number, with decimals if wanted, and a unit: none or B for bytes; K, M, G, T, P or KiB, MiB \
             and so on for powers of 1024; kB, MB and so on for powers of 1000. Case does not matter.\n";
    text += ".SH CONFIGURATION FILE\nA file in TOML whose keys are the names of options without the dashes, where a \
             key is given above:\n.PP\n.nf\n.RS\nmemory = \"75%\"\nstore = [\"/scratch\", \"/var/tmp\"]\nsummary = \
             true\n.RE\n.fi\n.PP\nA section gives the same for one program, by its path: as found, or with links resolved; for a \
             script its own path first, then its interpreter's:\n.PP\n.nf\n.RS\n[program.\"/usr/bin/R\"]\npages = \
             \"huge\"\n.RE\n.fi\n.PP\n\"ream compare \\-\\-save\" writes such sections to programs.toml beside this \
             file.\n.PP\nThe command line counts before the environment, the environment before the settings of the program, \
             these before the rest of the file, and the file before the defaults. Of the settings of a program those in \
             this file count before those in programs.toml. \\-\\-log=info shows what a run took from files.\n";
    text += ".SH ENVIRONMENT\n";
    for spec in COMMANDS.iter().flat_map(|command| shown(command.name)).filter(|spec| !spec.variable.is_empty()) {
        let item = format!(".TP\n.B {}\nAs \\-\\-{}.\n", spec.variable, escape(spec.name));
        if !text.contains(&item) {
            text += &item;
        }
    }
    text += &items(VARIABLES);
    text += ".SH EXIT STATUS\nOf\n.BR \"ream run\" :\n";
    text += &items(STATUSES);
    text += ".SH EXAMPLES\n";
    for (line, what) in [
        ("ream run -- ./solver input.dat", "Page only if the data outgrow the machine."),
        ("ream run --memory 4G -- Rscript model.R", "Use 4 GiB of RAM, however much the program asks for."),
        ("ream run --memory 50% --store /scratch --summary -- python3 job.py", "Say where, and report at the end."),
        ("ream doctor", "See what this machine offers, and what would make it better."),
    ] {
        text += &format!(".TP\n.B {}\n{what}\n", escape(line));
    }
    text += ".SH SEE ALSO\n.BR userfaultfd (2),\n.BR ld.so (8),\n.BR timeout (1)\n";
    text
}

fn items(items: &[Item]) -> String {
    items.iter().map(|item| format!(".TP\n.B {}\n{}\n", escape(item.name), escape(item.text))).collect()
}

/// Text as roff takes it: hyphens that stay hyphens, and no line that could be taken for a request.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('~', "\\(ti");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_option_and_no_hidden_one() {
        let page = page();
        for command in COMMANDS {
            for spec in ream_options::options_of(command.name).filter(|spec| spec.name != "help") {
                assert_eq!(page.contains(&escape(&flag(spec))), !spec.hidden, "{}", spec.name);
            }
        }
        assert!(page.contains(".B REAM_MEMORY\n") && page.contains("REAM_CONFIG"));
    }

    #[test]
    fn roff_is_escaped() {
        assert_eq!(escape("a-b\\~"), "a\\-b\\e\\(ti");
        assert_eq!(escape(".x"), "\\&.x");
    }
}
