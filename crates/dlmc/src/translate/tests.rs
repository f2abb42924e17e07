//! Translations of small sources, and what cannot be translated.

use super::*;

/// What becomes of a source, the declarations and uses in one line, without the part that runs before main.
fn body(source: &str) -> String {
    let text = translate(source, "x.c").expect("translatable").expect("dlm declarations");
    let end = text.find("\n# 1 \"<dlmc>\"").unwrap_or(text.len());
    text[..end].split_whitespace().collect::<Vec<_>>().join(" ")
}

fn error(source: &str) -> String {
    translate(source, "x.c").expect_err(source)
}

#[test]
fn files_without_the_keyword_are_left_alone() {
    assert_eq!(translate("int a[3]; @@ anything", "x.c"), Ok(None));
    assert_eq!(translate("typedef int dlm; dlm x; @@", "x.c"), Ok(None));
}

#[test]
fn declarations() {
    assert_eq!(body("dlm int a[2][3];"), "int (*a)[2][3] __asm__(\"dlm.a\");");
    assert_eq!(body("static dlm int a[2], b[3];"), "static int (*a)[2], (*b)[3];");
    assert_eq!(body("extern dlm int a[][3];"), "extern int (*a)[][3] __asm__(\"dlm.a\");");
    assert_eq!(body("static dlm int (*f[3])(int);"), "static int (*(*f)[3])(int);");
    assert_eq!(body("static dlm int a[2] = {0};"), "static int (*a)[2];");
    assert_eq!(
        body("dlm int a[2] __attribute__((aligned(8)));"),
        "int (*a)[2] __asm__(\"dlm.a\") __attribute__((aligned(8)));"
    );
    assert_eq!(
        body("typedef int t[3]; static dlm t a; static dlm struct { int x; } s;"),
        "typedef int t[3]; static t (*a); static struct { int x; } (*s);"
    );
}

#[test]
fn memory_comes_where_the_definition_is() {
    let begins = |source: &str| translate(source, "x.c").unwrap().unwrap().matches("dlm_array_begin(sizeof").count();
    assert_eq!(begins("extern dlm int a[3];"), 0);
    assert_eq!(begins("extern dlm int a[]; dlm int a[3]; dlm int a[3]; static dlm int b[2];"), 2);
    let text = translate("# 7 \"y.h\"\nstatic dlm int a[3];\n", "x.c").unwrap().unwrap();
    assert!(text.contains("# 7 \"y.h\" 3\n"), "{text}");
}

#[test]
fn uses_and_what_only_looks_like_them() {
    let around = |function: &str| {
        let text = body(&format!("static dlm int a[3]; struct s {{ int a; }}; {function}"));
        text.strip_prefix("static int (*a)[3]; struct s { int a; }; ").expect(&text).to_owned()
    };
    let same = [
        "int f(int a) { return a; }",
        "int f(void) { int a = 3; return a; }",
        "int f(struct s *p, struct s q) { return p->a + q.a; }",
        "int f(void) { goto a; a: return 1; }",
        "int f(void) { for (int a = 0; a; a++) a--; return 0; }",
        "struct s f(void) { return (struct s){.a = 1}; }",
        "int f(void) { return __builtin_offsetof(struct s, a); }",
        "int f(int n, int a[n]);",
        "int f(void) { enum { a = 3 }; return a; }",
        "int f(a) int a; { return a; }",
        "int f(void) { typedef int a; return (a)3; }",
    ];
    for function in same {
        assert_eq!(around(function), function);
    }
    let used = [
        ("int f(void) { return a[1]; }", "int f(void) { return (*a)[1]; }"),
        ("int f(void) { { int a; } return a[1]; }", "int f(void) { { int a; } return (*a)[1]; }"),
        ("int f(void) { int a = a + 1; return a; }", "int f(void) { int a = a + 1; return a; }"),
        ("int f(void) { int b = a[0], a = b; return a; }", "int f(void) { int b = (*a)[0], a = b; return a; }"),
        ("int f(int n, int b[sizeof a]) { return b[0]; }", "int f(int n, int b[sizeof (*a)]) { return b[0]; }"),
        ("int f(void) { for (int a = 0; a; ) ; return *a; }", "int f(void) { for (int a = 0; a; ) ; return *(*a); }"),
        ("int n = sizeof a / sizeof a[0];", "int n = sizeof (*a) / sizeof (*a)[0];"),
        ("__typeof__(a) b;", "__typeof__((*a)) b;"),
        ("int *f(int n) { return &a[n]; }", "int *f(int n) { return &(*a)[n]; }"),
        ("int f(int n) { return n ?: a[0]; }", "int f(int n) { return n ?: (*a)[0]; }"),
        ("int f(void (*g)(int a)) { return a[0]; }", "int f(void (*g)(int a)) { return (*a)[0]; }"),
    ];
    for (before, after) in used {
        assert_eq!(around(before), after);
    }
}

#[test]
fn pragmas() {
    let text = "static dlm int a[3];\nvoid f(void) {\n#pragma omp task depend(in: a[1]) shared(a)\n;\n}";
    assert!(body(text).contains("depend(in: (*a)[1]) shared(a)"));
    let text = "static dlm int a[3];\nvoid f(int a) {\n#pragma omp task firstprivate(a)\na++;\n}";
    assert!(body(text).contains("firstprivate(a)"));
    let text = "static dlm int a[3];\nvoid f(void) {\n#pragma omp parallel private(a)\n;\n}";
    assert!(error(text).starts_with("x.c:3: error: dlmc: a is a dlm array, which private()"));
}

#[test]
fn lines_are_kept() {
    let source = "static dlm\nint a\n[3] = {\n0\n};\nint f(void) { return a[0]; }\n";
    let text = translate(source, "x.c").unwrap().unwrap();
    assert_eq!(text[..text.find("f(void)").unwrap()].matches('\n').count(), 5);
}

#[test]
fn what_cannot_be_translated_is_an_error_with_its_line() {
    let cases = [
        ("int x;\ndlm int *p;", 2, "is a pointer"),
        ("dlm int n;", 1, "is a single number"),
        ("dlm int f(void);", 1, "is a function"),
        ("dlm int f(void) { return 0; }", 1, "not for functions"),
        ("typedef dlm int t[3];", 1, "not for types"),
        ("dlm typedef int t[3];", 1, "not for types"),
        ("dlm struct s { int a; };", 1, "declares nothing"),
        ("dlm int a[2] = {1, 2};", 1, "is initialised"),
        ("dlm char a[] = \"text\";", 1, "is initialised"),
        ("dlm int a[];", 1, "without a size"),
        ("dlm _Thread_local int a[2];", 1, "each thread's"),
        ("dlm __thread int a[2];", 1, "each thread's"),
        ("dlm int a[2] __attribute__((section(\".x\")));", 1, "attribute section"),
        ("dlm int a[2] __asm__(\"b\");", 1, "assembler's name"),
        ("void f(void) {\n\n dlm int a[2]; }", 3, "at file scope, not here"),
        ("struct s {\n dlm int a[2]; };", 2, "at file scope, not here"),
        ("dlm int a[2];\nint *p = a;", 2, "not known before the program runs"),
        ("dlm int a[2];\nint *f(void) {\nstatic int *p = &a[1]; return p; }", 3, "not known before the program runs"),
        ("dlm int a[2];\nextern int a[2];", 2, "without it here"),
        ("extern int a[];\ndlm int a[2];", 1, "without it here"),
        ("dlm int a[2];\nint b[2] __attribute__((foo(a)));", 2, "not understood what a means"),
        ("dlm int a[2];\nint f(void) { int g(void) { return 1; } return g(); }", 2, "not understood from"),
        ("dlm int a[2];\n# 9 \"other.h\"\nint int @;", 9, "not understood from"),
        ("dlm dlm int a[2];", 1, "twice"),
        ("dlm int \u{e9}t[2];", 1, "letters beyond ASCII"),
    ];
    for (source, line, words) in cases {
        let message = error(source);
        let file = if line == 9 { "other.h" } else { "x.c" };
        assert!(
            message.starts_with(&format!("{file}:{line}: error: dlmc: ")) && message.contains(words),
            "{source}\n{message}"
        );
    }
}

/// Nothing makes it panic: each piece of a file that has everything, cut off anywhere, is translated or refused.
#[test]
fn files_that_end_anywhere() {
    let source = "typedef int t; static dlm int a[3] = {0}, b[2]; dlm t c __attribute__((aligned(4)));\n\
                  #pragma omp parallel private(i) shared(a)\nint f(int n) { { int a; a = 'x'; } \
                  for (;;) asm(\"nop\" : : \"r\"(a)); return n ?: a[b[1]] + sizeof(int[]){1} + (&&l - &&l); }\n\
                  [[x]] int z = __builtin_types_compatible_p(int, t);\n";
    for end in 0..source.len() {
        let _ = translate(&source[..end], "x.c");
        let _ = translate(&source[end..], "x.c");
    }
}
