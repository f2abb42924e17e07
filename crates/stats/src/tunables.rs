//! What glibc's own malloc is told, by GLIBC_TUNABLES, in a program that no library enters.

/// The variable.
pub const VARIABLE: &str = "GLIBC_TUNABLES";
/// The tunable by which malloc asks for large pages, from glibc 2.35 on.
pub const LARGE: &str = "glibc.malloc.hugetlb";

/// Blocks below 32 MiB come from the heap, where many share a large page, and not each as a mapping of its own: from 128 KiB on
/// they are that until the first of them is freed. What is free at the heap's end is given back from 64 MiB on. These are the
/// values that malloc itself comes to when a block of 32 MiB is freed. To set one of them ends that, so lower ones would have
/// larger blocks mapped and touched anew each time.
///
/// The last: heaps of other threads, which malloc reserves 64 MiB at a time and opens page by page, so that no large page fits,
/// are opened as a whole. It is 132 KiB less than they are: one that is free is unmapped where the one before has that much free.
const ADDED: [&str; 4] = [
    "glibc.malloc.hugetlb=1",
    "glibc.malloc.mmap_threshold=33554432",
    "glibc.malloc.trim_threshold=67108864",
    "glibc.malloc.top_pad=66973696",
];

/// By each of these, or the older variable, somebody has decided on what malloc maps and gives back.
const SIZES: [(&str, &str); 3] = [
    ("glibc.malloc.mmap_threshold", "MALLOC_MMAP_THRESHOLD_"),
    ("glibc.malloc.trim_threshold", "MALLOC_TRIM_THRESHOLD_"),
    ("glibc.malloc.top_pad", "MALLOC_TOP_PAD_"),
];

/// What the user has decided about malloc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// Nothing.
    Nothing,
    /// What it maps by itself and what it gives back.
    Sizes,
    /// Whether it asks for large pages, and so the rest as well.
    All,
}

/// What the user has decided by the variable's value, `before`, and by other variables, of which `is_set` tells.
pub fn decided(before: &[u8], is_set: impl Fn(&str) -> bool) -> Decided {
    let names = |name: &str| {
        before.split(|byte| *byte == b':').any(|one| one.split(|byte| *byte == b'=').next() == Some(name.as_bytes()))
    };
    if names(LARGE) {
        return Decided::All;
    }
    match SIZES.iter().any(|(name, variable)| names(name) || is_set(variable)) {
        true => Decided::Sizes,
        false => Decided::Nothing,
    }
}

/// What is added to the variable's value, part by part: nothing that is not left to us. `whole` tells whether heaps of other
/// threads may be opened as a whole: each then takes a large page for its first block, and as much address space and data as it
/// is large.
pub fn added(decided: Decided, whole: bool) -> &'static [&'static str] {
    match decided {
        Decided::All => &[],
        Decided::Sizes => &ADDED[..1],
        Decided::Nothing if whole => &ADDED,
        Decided::Nothing => &ADDED[..3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_decided_stays() {
        let of = |before: &str| decided(before.as_bytes(), |_| false);
        assert_eq!([of(""), of("glibc.cpu.x=2"), of("glibc.malloc.top_pad_=1")], [Decided::Nothing; 3]);
        assert_eq!([of("glibc.malloc.hugetlb=0"), of("glibc.cpu.x=2:glibc.malloc.hugetlb=2")], [Decided::All; 2]);
        assert!(added(Decided::All, true).is_empty());
        for (name, variable) in SIZES {
            for before in [name, "glibc.cpu.x=2"] {
                let one = decided(before.as_bytes(), |asked| before != name && asked == variable);
                assert_eq!((one, added(one, true)), (Decided::Sizes, &["glibc.malloc.hugetlb=1"][..]), "{name}");
            }
        }
        assert_eq!([false, true].map(|whole| added(Decided::Nothing, whole).len()), [3, 4]);
        assert!(ADDED[0].starts_with(LARGE));
    }
}
