//! Random programs in which the names of dlm arrays are names of everything else, too, further in: compiled by dlmc, and
//! plain by the compiler, they must print the same.

use ream_tests::{Installation, Run, Scratch, ran};
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

/// What a name is in a scope.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    /// An array of `int [][3]`, of file scope or of a function.
    Array,
    /// Something that is a number.
    Number,
    /// An enumerator or a type: nothing can be stored in it.
    Constant,
    Type,
    Structure,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
type Scope = [Is; 4];

struct Writer {
    state: u64,
    text: String,
}

impl Writer {
    fn below(&mut self, bound: u64) -> usize {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.state >> 33) % bound) as usize
    }

    fn line(&mut self, depth: usize, line: &str) {
        writeln!(self.text, "{}{line}", "\t".repeat(depth)).expect("text");
    }

    fn expression(&mut self, scope: &Scope, deep: usize) -> String {
        let (which, form) = (self.below(4), self.below(8));
        let name = NAMES[which];
        if deep < 2 && self.below(4) == 0 {
            let (left, right) = (self.expression(scope, deep + 1), self.expression(scope, deep + 1));
            let inner = NAMES[self.below(4)];
            return match self.below(4) {
                0 => format!("({left} ?: {right})"),
                1 => format!("({{ int {inner} = 3; {inner} + {inner}; }})"),
                2 => format!("({{ struct {inner} {{ int {inner}; }} q = {{ {left} }}; q.{inner}; }})"),
                _ => format!("({left} + {right})"),
            };
        }
        match scope[which] {
            Is::Array => match form {
                0 => format!("(int)sizeof {name}"),
                1 => format!("(int)(sizeof({name}) / sizeof *{name})"),
                2 => format!("*{name}[1]"),
                3 => format!("(*{name})[2]"),
                4 => format!("(int)(&{name}[1] - {name})"),
                5 => format!("(**{name})"),
                6 => format!("1[{name}][sizeof {name}[0] > 3]"),
                _ => {
                    let index = self.expression(scope, 2);
                    format!("{name}[{}][({index}) & 1]", self.below(2))
                }
            },
            Is::Structure => match form {
                0..=3 => format!("{name}.{}", ["a", "b", "d"][form % 3]),
                4 => format!("(&{name})->a"),
                5 => format!("{name}.c[1]"),
                _ => format!("(int)sizeof({name}.c)"),
            },
            Is::Type => format!("(({name})3 + (int)sizeof({name}))"),
            Is::Number | Is::Constant => name.to_owned(),
        }
    }

    /// Something that can be assigned to.
    fn place(&mut self, scope: &Scope) -> String {
        let which = self.below(4);
        match scope[which] {
            Is::Array => format!("{}[{}][{}]", NAMES[which], self.below(2), self.below(3)),
            Is::Structure => format!("{}.{}", NAMES[which], ["a", "b", "d"][self.below(3)]),
            Is::Number => NAMES[which].to_owned(),
            Is::Constant | Is::Type => "sum".to_owned(),
        }
    }

    fn declaration(&mut self, scope: &mut Scope, taken: &mut Vec<usize>, depth: usize) {
        let which = self.below(4);
        if taken.contains(&which) {
            return;
        }
        taken.push(which);
        let name = NAMES[which];
        let (is, line) = match self.below(5) {
            0 => {
                // Of the name's own scope only the rest of the line is left: it means the new one there.
                let other = NAMES[(which + 1) % 4];
                let size = if matches!(scope[(which + 1) % 4], Is::Array) {
                    format!("(int)sizeof {other}")
                } else {
                    "4".into()
                };
                (Is::Number, format!("int {name} = {size} + (int)sizeof {name};"))
            }
            1 => (Is::Structure, format!("struct s {name} = {{ .a = 1, .b = 2, .c = {{ [1] = 5 }}, .d = 3 }};")),
            2 => (Is::Constant, format!("enum {{ {name} = {} }};", 1 + self.below(9))),
            3 => (Is::Array, format!("int {name}[2][3] = {{ {{ 1, 2, 3 }}, {{ 4, 5, 6 }} }};")),
            _ => (Is::Type, format!("typedef int {name};")),
        };
        scope[which] = is;
        self.line(depth, &line);
    }

    fn block(&mut self, scope: &Scope, mut taken: Vec<usize>, depth: usize) {
        let mut scope = *scope;
        for _ in 0..1 + self.below(6) {
            let form = if depth > 4 { self.below(5) } else { self.below(9) };
            match form {
                0 => self.declaration(&mut scope, &mut taken, depth),
                1 | 2 => {
                    let (place, value) = (self.place(&scope), self.expression(&scope, 0));
                    self.line(depth, &format!("{place} = {value} % 1000;"));
                }
                3 | 4 => {
                    let value = self.expression(&scope, 0);
                    self.line(depth, &format!("sum += {value};"));
                }
                5 => {
                    self.line(depth, "{");
                    self.block(&scope, Vec::new(), depth + 1);
                    self.line(depth, "}");
                }
                6 => {
                    let (which, mut inner) = (self.below(4), scope);
                    let name = NAMES[which];
                    inner[which] = Is::Constant;
                    self.line(depth, &format!("for (int {name} = 0; {name} < 3; {name}++) {{"));
                    self.block(&inner, vec![which], depth + 1);
                    self.line(depth, "}");
                }
                7 => {
                    let value = self.expression(&scope, 0);
                    self.line(depth, &format!("if ({value} > 2) {{"));
                    self.block(&scope, Vec::new(), depth + 1);
                    let value = self.expression(&scope, 0);
                    self.line(depth, &format!("}} else sum += {value};"));
                }
                _ => {
                    let value = self.expression(&scope, 0);
                    let member = NAMES[self.below(4)];
                    let line = format!(
                        "{{ struct s z = {{ .b = {value} }}; sum += z.b + (int)offsetof(struct s, {member}); }}"
                    );
                    self.line(depth, &line);
                }
            }
        }
    }

    fn program(seed: u64) -> String {
        let mut writer = Writer { state: seed, text: String::new() };
        writer.line(0, "#include <stddef.h>\n#include <stdio.h>\nstruct s { int a, b, c[2], d; };\nstatic long sum;");
        for name in NAMES {
            let rows = 2 + writer.below(7);
            writer.line(0, &format!("dlm int {name}[{rows}][3];"));
        }
        for function in 0..6 {
            let (mut scope, parameter, label) = ([Is::Array; 4], writer.below(4), NAMES[writer.below(4)]);
            scope[parameter] = Is::Number;
            let name = NAMES[parameter];
            writer.line(0, &format!("static int f{function}(int {name});\nstatic int f{function}(int {name})\n{{"));
            writer.line(1, &format!("if (sum < 0) goto {label};"));
            writer.block(&scope, vec![parameter], 1);
            writer.line(0, &format!("{label}:\n\treturn (int)(sum % 1000);\n}}"));
        }
        writer.line(0, "int main(void)\n{");
        for name in NAMES {
            let line = format!("for (size_t i = 0; i < sizeof {name} / sizeof(int); i++) (&{name}[0][0])[i] = (int)i;");
            writer.line(1, &line);
        }
        for function in 0..6 {
            writer.line(1, &format!("printf(\"%d\\n\", f{function}(7));"));
        }
        for name in NAMES {
            let line = format!(
                "for (size_t i = 0; i < sizeof {name} / sizeof(int); i++) sum = sum * 31 % 1000003 + (*{name})[i];"
            );
            writer.line(1, &line);
        }
        writer.line(1, "printf(\"%ld\\n\", sum);\n}");
        writer.text
    }
}

#[test]
fn names_mean_the_same() {
    let installation = Installation::new("dlm-random");
    let scratch = Scratch::new("dlm-random");
    for seed in 0..20 {
        let source = scratch.file("random.c");
        fs::write(&source, Writer::program(seed)).expect("writing a program");
        let (plain, managed) = (scratch.file("plain"), scratch.file("managed"));
        // Overflows wrap, and what is out of bounds of a row is in the next.
        let flags = ["-w", "-O0", "-fwrapv"];
        ran(Command::new("cc").arg("-Ddlm=").args(flags).arg(&source).arg("-o").arg(&plain));
        ran(Command::new(installation.prefix().join("bin/dlmc")).args(flags).arg(&source).arg("-o").arg(&managed));
        let (plain, managed) = (Run::of(&plain).unmeasured().finish(), Run::of(&managed).unmeasured().finish());
        assert!(plain.status.success() && plain.stdout == managed.stdout, "seed {seed}\n{}", Writer::program(seed));
    }
}
