//! What a compiler's arguments ask for: which files are C sources, what is done with them, and the arguments of the
//! calls that `dlmc` makes of them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Options whose value is the next argument.
const WITH_VALUE: &[&str] = &[
    "-o",
    "-I",
    "-D",
    "-U",
    "-L",
    "-l",
    "-x",
    "-T",
    "-u",
    "-z",
    "-e",
    "-G",
    "-A",
    "-B",
    "-include",
    "-imacros",
    "-isystem",
    "-idirafter",
    "-iquote",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-isysroot",
    "-imultilib",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xclang",
    "-MF",
    "-MT",
    "-MQ",
    "-aux-info",
    "--param",
    "-wrapper",
    "-dumpbase",
    "-dumpbase-ext",
    "-dumpdir",
    "-target",
    "-arch",
    "-framework",
];

/// Options, with values, that ask for lists of what a file includes.
const LISTS_WITH_VALUE: &[&str] = &["-MF", "-MT", "-MQ"];
const LISTS: &[&str] = &["-MD", "-MMD", "-MP", "-MG"];

/// What comes out in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing that dlmc has a part in: `-E`, `-M`, or no input.
    Preprocess,
    /// `-S`, `-c`, `-fsyntax-only`.
    Compile,
    /// A program or a library.
    Link,
}

/// One argument, or an option with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Option(OsString),
    Pair(OsString, OsString),
    /// A C source, in the language that `-x` said, if it did.
    Source(PathBuf, Option<OsString>),
    /// Any other file.
    File(OsString),
}

/// What compilers take for C++.
const CPP: [&str; 8] = ["cc", "cp", "cxx", "cpp", "CPP", "c++", "C", "ii"];

/// The arguments, understood.
#[derive(Clone, Debug)]
pub struct Arguments {
    items: Vec<Item>,
    /// What is asked for.
    pub stage: Stage,
}

impl Arguments {
    /// Reads a compiler's arguments.
    ///
    /// # Errors
    /// For what cannot be done with dlm arrays.
    pub fn read(arguments: Vec<OsString>) -> Result<Arguments, String> {
        let mut items = Vec::new();
        let mut stage = Stage::Link;
        let mut language: Option<OsString> = None;
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy().into_owned();
            match text.as_str() {
                "-E" | "-M" | "-MM" => stage = Stage::Preprocess,
                "-c" | "-S" | "-fsyntax-only" if stage == Stage::Link => stage = Stage::Compile,
                "-static" | "-static-pie" | "--static" => {
                    return Err(format!("{text}: Ream pages programs that are linked dynamically"));
                }
                _ => {}
            }
            if WITH_VALUE.contains(&text.as_str()) {
                let value = arguments.next().ok_or_else(|| format!("{text} needs a value"))?;
                if text == "-x" {
                    language = Some(value.clone()).filter(|value| value != "none");
                }
                items.push(Item::Pair(argument, value));
            } else if text.len() > 1 && text.starts_with('-') {
                if let Some(value) = text.strip_prefix("-x") {
                    language = Some(OsString::from(value)).filter(|value| value != "none");
                }
                items.push(Item::Option(argument));
            } else {
                let path = PathBuf::from(&argument);
                let is_c = match &language {
                    Some(language) => language == "c",
                    None => path.extension() == Some(OsStr::new("c")),
                };
                let is_cpp = match &language {
                    Some(language) => language.as_bytes().starts_with(b"c++"),
                    None => path.extension().is_some_and(|extension| CPP.iter().any(|cpp| extension == *cpp)),
                };
                if is_cpp && stage != Stage::Preprocess {
                    return Err(format!(
                        "{text}: this is C++, and only C has dlm arrays; compile it with c++ -c, and give dlmc the object"
                    ));
                }
                let source = is_c && text != "-" && !text.starts_with('@');
                items.push(if source { Item::Source(path, language.clone()) } else { Item::File(argument) });
            }
        }
        if !items.iter().any(|item| matches!(item, Item::Source(..) | Item::File(_))) {
            stage = Stage::Preprocess;
        }
        Ok(Arguments { items, stage })
    }

    /// The C sources.
    pub fn sources(&self) -> Vec<&Path> {
        self.items
            .iter()
            .filter_map(|item| match item {
                Item::Source(path, _) => Some(path.as_path()),
                _ => None,
            })
            .collect()
    }

    /// Whether lists of what is included are wanted besides.
    pub fn lists(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Option(option) if option == "-MD" || option == "-MMD"))
    }

    /// Whether what is linked is to hold the libraries: not where it is to be linked again.
    pub fn links_libraries(&self) -> bool {
        self.stage == Stage::Link
            && !self.items.iter().any(|item| matches!(item, Item::Option(option) if option == "-r"))
    }

    fn output(&self) -> Option<&OsStr> {
        self.items.iter().rev().find_map(|item| match item {
            Item::Pair(option, value) if option == "-o" => Some(value.as_os_str()),
            Item::Option(option) => {
                option.as_bytes().strip_prefix(b"-o").filter(|rest| !rest.is_empty()).map(OsStr::from_bytes)
            }
            _ => None,
        })
    }

    /// The arguments that preprocess one of the sources, to standard output.
    pub fn preprocess(&self, source: &Path) -> Vec<OsString> {
        let mut result = Vec::new();
        for item in &self.items {
            match item {
                Item::Option(option) if for_preprocessor(option) => result.push(option.clone()),
                Item::Pair(option, value)
                    if !matches!(
                        option.to_str(),
                        Some("-o" | "-x" | "-Xlinker" | "-L" | "-l" | "-T" | "-u" | "-z" | "-e")
                    ) =>
                {
                    result.extend([option.clone(), value.clone()]);
                }
                _ => {}
            }
        }
        if self.lists() {
            // With -E the compiler would name the list, and what depends on it, after the standard output.
            let has = |wanted: &[&str]| {
                self.items.iter().any(|item| match item {
                    Item::Pair(option, _) => wanted.iter().any(|wanted| option == wanted),
                    Item::Option(option) => {
                        wanted.iter().any(|wanted| option.as_bytes().starts_with(wanted.as_bytes()))
                    }
                    _ => false,
                })
            };
            let object = match (self.stage, self.output()) {
                (Stage::Compile, Some(output)) => PathBuf::from(output),
                _ => PathBuf::from(source.file_name().unwrap_or_default()).with_extension("o"),
            };
            if !has(&["-MF"]) {
                let base = match self.output() {
                    Some(output) if self.stage == Stage::Link => {
                        let mut name = Path::new(output).file_name().unwrap_or_default().to_owned();
                        name.push("-");
                        name.push(source.file_stem().unwrap_or_default());
                        Path::new(output).with_file_name(name).into_os_string()
                    }
                    _ => object.with_extension("").into_os_string(),
                };
                let mut list = base;
                list.push(".d");
                result.extend(["-MF".into(), list]);
            }
            if !has(&["-MT", "-MQ"]) {
                result.extend(["-MQ".into(), object.into_os_string()]);
            }
        }
        result.extend(["-E".into(), "-x".into(), "c".into(), source.as_os_str().to_owned()]);
        result
    }

    /// The arguments that compile everything, with files in place of some of the sources; `None`: the source itself.
    pub fn compile(&self, instead: &[Option<PathBuf>]) -> Vec<OsString> {
        let all_replaced = instead.iter().all(Option::is_some);
        let mut result = Vec::new();
        let mut next = instead.iter();
        for item in &self.items {
            match item {
                Item::Option(option) => {
                    let list = all_replaced
                        && LISTS
                            .iter()
                            .chain(LISTS_WITH_VALUE)
                            .any(|list| option.as_bytes().starts_with(list.as_bytes()));
                    if !list {
                        result.push(option.clone());
                    }
                }
                Item::Pair(option, value) => {
                    // These were done with when the files were preprocessed.
                    let done = LISTS_WITH_VALUE.iter().chain(&["-include", "-imacros"]).any(|done| option == done);
                    if !(all_replaced && done) {
                        result.extend([option.clone(), value.clone()]);
                    }
                }
                Item::File(file) => result.push(file.clone()),
                Item::Source(path, language) => match next.next().and_then(Option::as_ref) {
                    Some(made) => {
                        result.extend(["-x".into(), "cpp-output".into(), made.as_os_str().to_owned()]);
                        result.extend(["-x".into(), language.clone().unwrap_or_else(|| "none".into())]);
                    }
                    None => result.push(path.as_os_str().to_owned()),
                },
            }
        }
        result
    }
}

/// Whether an option says anything to the preprocessor; those of the linker make it warn that there is nothing to link.
fn for_preprocessor(option: &OsStr) -> bool {
    let text = option.to_string_lossy();
    let linker = ["-Wl,", "-l", "-L", "-o", "-x", "-T"].iter().any(|prefix| text.starts_with(prefix));
    !linker && !matches!(text.as_ref(), "-c" | "-S" | "-fsyntax-only" | "-pipe" | "-save-temps" | "-shared" | "-r")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Arguments {
        Arguments::read(text.split(' ').map(OsString::from).collect()).expect("arguments")
    }

    fn joined(arguments: Vec<OsString>) -> String {
        arguments.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn files_of_cpp_are_refused() {
        let of = |words: &str| Arguments::read(words.split(' ').map(Into::into).collect());
        for words in ["a.cpp -o a", "-c a.cc", "a.c b.C", "-x c++ a.c", "-xc++ a.c -c", "a.cxx"] {
            let why = of(words).unwrap_err();
            assert!(why.contains("this is C++, and only C has dlm arrays"), "{words}: {why}");
        }
        for words in ["-E a.cpp", "-x c a.cpp", "a.c b.o", "a.c cc.f90", "-xc++ -xnone a.c"] {
            assert!(of(words).is_ok(), "{words}");
        }
    }

    #[test]
    fn a_program_of_two_files() {
        let arguments = read("-O2 -fopenmp -DN=3 -I inc a.c b.o -x c odd -x none c.f90 -o prog -lm -Wl,-z,now");
        assert_eq!(arguments.stage, Stage::Link);
        assert_eq!(arguments.sources(), [Path::new("a.c"), Path::new("odd")]);
        assert_eq!(joined(arguments.preprocess(Path::new("a.c"))), "-O2 -fopenmp -DN=3 -I inc -E -x c a.c");
        let made = [Some(PathBuf::from("/t/a.i")), None];
        let wanted =
            "-O2 -fopenmp -DN=3 -I inc -x cpp-output /t/a.i -x none b.o -x c odd -x none c.f90 -o prog -lm -Wl,-z,now";
        assert_eq!(joined(arguments.compile(&made)), wanted);
    }

    #[test]
    fn lists_of_what_is_included() {
        let arguments = read("-MD -MP -c -include x.h dir/a.c -o out/a.o");
        assert_eq!(arguments.stage, Stage::Compile);
        let wanted = "-MD -MP -include x.h -MF out/a.d -MQ out/a.o -E -x c dir/a.c";
        assert_eq!(joined(arguments.preprocess(Path::new("dir/a.c"))), wanted);
        let made = [Some(PathBuf::from("/t/a.i"))];
        assert_eq!(joined(arguments.compile(&made)), "-c -x cpp-output /t/a.i -x none -o out/a.o");
        let arguments = read("-MMD -MF l -MT t a.c -oprog");
        assert_eq!(joined(arguments.preprocess(Path::new("a.c"))), "-MMD -MF l -MT t -E -x c a.c");
        let arguments = read("-MMD dir/a.c -o bin/prog");
        assert_eq!(joined(arguments.preprocess(Path::new("dir/a.c"))), "-MMD -MF bin/prog-a.d -MQ a.o -E -x c dir/a.c");
    }

    #[test]
    fn stages() {
        assert_eq!(read("--version").stage, Stage::Preprocess);
        assert_eq!(read("-E a.c").stage, Stage::Preprocess);
        assert_eq!(read("-c a.c").stage, Stage::Compile);
        assert!(
            read("a.c").links_libraries()
                && !read("-c a.c").links_libraries()
                && !read("-r a.o -o b.o").links_libraries()
        );
        assert!(Arguments::read(vec!["-static".into(), "a.c".into()]).is_err());
        assert!(Arguments::read(vec!["a.c".into(), "-o".into()]).is_err());
    }
}
