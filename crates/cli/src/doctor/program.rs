//! `ream doctor PROGRAM`: which pages each region of that program will get under `ream run`, and why. It decides by the
//! same functions that a run goes through: who is executed, whether it can be entered, what its code's blocks are.

use super::statics::Statics;
use super::{quoted, setting};
use crate::code::{self, Library, Why, Wish, candidates, closure, expected};
use crate::elf::Layout;
use crate::failure::Failure;
use crate::os::{self, BLOCK};
use crate::pages::{self, Offer};
use crate::program::{self, Caller, Link, Reach};
use crate::settings::Settings;
use crate::{inject, outside};
use ream_options::pages::{BSS, HEAP, HUGETLB, MIDDLE, SHM, SMALL, STACK, TEXT};
use ream_options::{PageChoice, REGIONS, show_size};
use ream_stats::{Config, Pages as Granted};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// What a region will get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pages {
    /// 1 GiB.
    Gigantic,
    /// 2 MiB.
    Large,
    /// 64 KiB.
    Middle,
    Small,
    /// There is nothing of it, or it is not known beforehand.
    None,
}

/// One region.
#[derive(Debug)]
struct Row {
    region: &'static str,
    /// Its file, where the region is not the program's.
    file: Option<PathBuf>,
    size: Option<u64>,
    /// Whole blocks that will lie on large pages, as far as that is known.
    blocks: Option<u64>,
    pages: Pages,
    why: String,
}

/// How Ream gets into a program.
enum Entry {
    Library,
    /// Without a library: at the start only, and why its own malloc does not take large pages, if so.
    Start(Option<&'static str>),
    Not(String),
    /// It is not even started: it must have pages that it cannot have.
    Never(String),
}

/// Looks at the program that `rest` begins with. Returns text and exit status: 1 where it cannot be entered, or is not
/// started.
pub fn report(settings: &Settings, rest: &[OsString], json: bool) -> Result<(String, i32), Failure> {
    let path = std::env::var_os("PATH");
    let name = rest.first().map_or(OsStr::new(""), OsString::as_os_str);
    let file = program::find(name, path.as_deref())?;
    let links = program::chain(&file, path.as_deref());
    let layout = links.last().and_then(|link| Layout::read(&link.opened));
    let (Some(link), Some(layout)) = (links.last(), layout) else {
        return Err(Failure::new(format!("{}: not a program that can be read", file.display())));
    };
    let (user, group) = os::user_and_group();
    // As in a run, which is told of nothing here.
    let (offer, mut pages) = (Offer::here(), Config::new());
    let settled = offer.settle(&settings.pages, &mut pages, &mut |_| ());
    let mut entry = match (settled, program::judge(&links, Caller { user, group })) {
        (Err(failure), _) => Entry::Never(failure.text),
        (_, Reach::Inside) => Entry::Library,
        (_, Reach::Outside { why, program, inherits }) => match outside::impossible(&program, inherits, &pages) {
            Some(obstacle) => Entry::Never(format!("{why}, so {obstacle}; {}", outside::PROMISED)),
            None => Entry::Start(outside::heap_obstacle(&program, inherits)),
        },
        (_, Reach::Not(why)) if settings.promises_pages() => Entry::Never(why),
        (_, Reach::Not(why)) => Entry::Not(why),
    };
    let mut rows = rows(settings, &offer, &links, link, &layout, &entry);
    if let Some(row) = rows.iter().find(|row| row.why.ends_with(NOT_SO)) {
        entry = Entry::Never(format!("its code: {}", row.why));
    }
    if matches!(entry, Entry::Never(_)) {
        for row in rows.iter_mut().filter(|row| !row.why.ends_with(NOT_SO)) {
            (row.pages, row.blocks, row.why) = (Pages::None, None, "it is not started".to_owned());
        }
    }
    let text = if json { as_json(&links, &entry, &rows) } else { as_text(&links, &entry, &rows) };
    Ok((text, i32::from(!entry.is_good())))
}

impl Entry {
    fn is_good(&self) -> bool {
        matches!(self, Entry::Library | Entry::Start(_))
    }
}

/// How the words end of code that must lie on large pages and does not.
const NOT_SO: &str = "; --pages=text=huge:require does not start it so";

fn rows(settings: &Settings, offer: &Offer, links: &[Link], link: &Link, layout: &Layout, entry: &Entry) -> Vec<Row> {
    let searched = std::env::var_os("LD_LIBRARY_PATH");
    let libraries = closure(&link.file, layout, None, searched.as_deref());
    let small_wanted = settings.pages[..=STACK].iter().all(|choice| choice.size == SMALL);
    let general = match entry {
        _ if small_wanted => Some("--pages=small".to_owned()),
        Entry::Not(_) => Some("Ream is not in it".to_owned()),
        // From outside there is nothing else.
        Entry::Start(_) if os::large_pages_are_off() => Some(pages::OFF.to_owned()),
        Entry::Start(_) if !pages::are_on() => Some("transparent large pages are off; see ream doctor".to_owned()),
        _ => None,
    };
    let mut rows = vec![heap(layout, &libraries, entry)];
    let statics = |region, file: Option<PathBuf>, layout: &Layout| static_row(region, file, layout, entry);
    rows.push(statics("static data", None, layout));
    let large = |library: &&Library| Statics::of(&library.layout).blocks > 0;
    for library in libraries.iter().filter(large) {
        rows.push(statics("library data", Some(library.path.clone()), &library.layout));
    }
    rows.push(main_stack(os::limit(libc::RLIMIT_STACK)));
    let reached = matches!(entry, Entry::Start(_)) && inject::hook::Sites::find(&link.opened).0[1].is_some();
    rows.push(thread_stacks(os::limit(libc::RLIMIT_STACK), entry, reached));
    let asked = settings.pages[SHM].size != SMALL && matches!(entry, Entry::Library);
    rows.extend((!asked).then(shared_memory));
    if let Some(why) = general {
        for row in rows.iter_mut().filter(|row| row.pages == Pages::Large) {
            (row.pages, row.blocks, row.why) = (Pages::Small, Some(0), why.clone());
        }
    }
    for (regions, place) in
        [(&["heap"][..], HEAP), (&["static data", "library data"], BSS), (&["main stack", "thread stacks"], STACK)]
    {
        let choice = settings.pages[place];
        let granted = offer.region(place, choice);
        for row in rows.iter_mut().filter(|row| row.pages == Pages::Large && regions.contains(&row.region)) {
            as_granted(row, place, choice, &granted, matches!(entry, Entry::Library));
        }
    }
    rows.extend(asked.then(|| shared_as_asked(offer, settings.pages[SHM])));
    // What is said of the code alone, or of everything.
    let wish = if small_wanted { Wish::Never } else { Wish::of(settings.pages[TEXT]) };
    rows.push(code_row(links, link, layout, wish));
    for (library, offsets) in candidates(libraries) {
        rows.push(library_code(library, &offsets, wish == Wish::Never));
    }
    rows
}

/// Puts into a row of large pages what a run gives that region of what was asked for.
fn as_granted(
    row: &mut Row,
    place: usize,
    choice: PageChoice,
    granted: &(Granted, Granted, Option<String>),
    inside: bool,
) {
    let missing = || granted.2.clone().unwrap_or_else(|| "not to be had here; see ream doctor".to_owned());
    match granted.0 {
        Granted::Small if choice.size == SMALL => {
            (row.pages, row.blocks, row.why) = (Pages::Small, Some(0), format!("--pages={}=small", REGIONS[place]));
        }
        Granted::Small => (row.pages, row.blocks, row.why) = (Pages::Small, Some(0), missing()),
        _ if choice.size == MIDDLE => (row.pages, row.blocks) = (Pages::Middle, None),
        // What is mapped is as large as the heap needs it; static data seldom hold a whole one.
        Granted::Gigantic if inside && place == HEAP => {
            (row.pages, row.blocks) = (Pages::Gigantic, None);
            row.why += "; of the pool, where less is left 2 MiB";
        }
        granted if granted.pooled() && inside => row.why += "; of the pool",
        _ if choice.size >= HUGETLB && granted.2.is_some() => row.why = format!("{}; {}", missing(), row.why),
        _ => {}
    }
}

fn heap(layout: &Layout, libraries: &[Library], entry: &Entry) -> Row {
    let row = |pages, why: &str| Row { region: "heap", file: None, size: None, blocks: None, pages, why: why.into() };
    if layout.is_go {
        return row(Pages::None, "Go maps memory by system calls of its own, which Ream does not see");
    }
    match entry {
        Entry::Start(None) => {
            return row(
                Pages::Large,
                "the main thread's, which its own malloc asks for; others' with heap=huge, or by a glibc that Ream knows; stays \
                 large where little is touched (no --bloat)",
            );
        }
        Entry::Start(Some(why)) => return row(Pages::Small, &format!("its own malloc: {why}")),
        Entry::Library | Entry::Not(_) | Entry::Never(_) => {}
    }
    let names = || libraries.iter().filter_map(|library| library.path.file_name()?.to_str());
    if names().any(|name| name.starts_with("libjli.so") || name.starts_with("libjvm.so")) {
        return row(Pages::Large, "Java's heap is a mapping: from 4 MiB on such are aligned and advised");
    }
    let allocators = ["libjemalloc", "libtcmalloc", "libmimalloc"];
    match names().find(|name| allocators.iter().any(|allocator| name.starts_with(allocator))) {
        Some(name) => row(
            Pages::Large,
            &format!("Ream's malloc takes the place of that in {name}; what that maps itself counts from 4 MiB on"),
        ),
        None => row(Pages::Large, "blocks from 4 MiB at once, small ones when they are 32 MiB together"),
    }
}

fn static_row(region: &'static str, file: Option<PathBuf>, layout: &Layout, entry: &Entry) -> Row {
    let statics = Statics::of(layout);
    let mut why = format!("{} of data, {} of zeros", show_size(statics.data), show_size(statics.zeros));
    if statics.blocks == 0 {
        why += "; no part of 1 MiB or more fills a block";
    } else if statics.shared {
        why += "; blocks that they share with other data stay on small pages";
    }
    if matches!(entry, Entry::Start(_)) && statics.blocks > 0 {
        why += "; large pages only, cannot be paged";
    }
    Row {
        region,
        file,
        size: Some(statics.data + statics.zeros),
        blocks: Some(statics.blocks),
        pages: if statics.blocks > 0 { Pages::Large } else { Pages::Small },
        why,
    }
}

/// The main stack, by its limit; `None` is unlimited.
fn main_stack(limit: Option<u64>) -> Row {
    // As in the library: it is mapped down to its limit less this, and to 64 MiB at most.
    const SPARE: u64 = 128 << 10;
    const MOST: u64 = 64 << 20;
    let bytes = limit.map_or(MOST, |limit| limit.saturating_sub(SPARE).min(MOST));
    let large = bytes >= 3 * BLOCK as u64;
    let shown = limit.map_or("unlimited".to_owned(), |limit| show_size(limit).to_string());
    let why = match large {
        true => format!("ulimit -s: {shown}; the first block keeps small pages where most programs end in it"),
        false => format!("ulimit -s: {shown}; too little for a whole block"),
    };
    let blocks = if large { bytes / BLOCK as u64 - 1 } else { 0 };
    let pages = if large { Pages::Large } else { Pages::Small };
    Row { region: "main stack", file: None, size: limit, blocks: Some(blocks), pages, why }
}

/// `reached` where a static program's own mmap can be had to ask.
fn thread_stacks(limit: Option<u64>, entry: &Entry, reached: bool) -> Row {
    const LEAST: u64 = 4 << 20;
    // What glibc takes where there is no limit.
    const DEFAULT: u64 = 2 << 20;
    let bytes = limit.unwrap_or(DEFAULT);
    let (pages, why) = match (entry, bytes >= LEAST) {
        (Entry::Start(_), _) if !reached => {
            (Pages::Small, "made after the start, by an mmap that is not the one of glibc that Ream knows".to_owned())
        }
        (_, true) => (Pages::Large, "as large as ulimit -s unless the program says otherwise".to_owned()),
        (_, false) => (Pages::Small, "smaller than 4 MiB unless the program says otherwise; see ulimit -s".to_owned()),
    };
    Row { region: "thread stacks", file: None, size: Some(bytes), blocks: None, pages, why }
}

fn shared_memory() -> Row {
    let mode = setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    let kernel = ["always", "force", "within_size"].iter().any(|word| mode.contains(&format!("[{word}]")));
    let (pages, why) = match kernel {
        true => (Pages::Large, "the kernel's own rule (shmem_enabled)"),
        false => (Pages::Small, "left as the program makes it"),
    };
    Row { region: "shared memory", file: None, size: None, blocks: None, pages, why: why.to_owned() }
}

/// Shared memory where the user wants it on other than small pages.
fn shared_as_asked(offer: &Offer, choice: PageChoice) -> Row {
    let (granted, _, missing) = offer.region(SHM, choice);
    let (pages, why) = match (granted, missing) {
        (Granted::Hugetlb, _) => {
            (Pages::Large, "the pool's pages as far as they go; files get none of those".to_owned())
        }
        (Granted::Small, missing) => (Pages::Small, missing.unwrap_or_default()),
        (_, Some(missing)) => (Pages::Large, format!("from 2 MiB on; {missing}")),
        (_, None) => (Pages::Large, "from 2 MiB on".to_owned()),
    };
    Row { region: "shared memory", file: None, size: None, blocks: None, pages, why }
}

fn code_row(links: &[Link], link: &Link, layout: &Layout, wish: Wish) -> Row {
    let (offsets, why) = expected(layout);
    let (blocks, pages, mut why) = match (why, wish) {
        (_, Wish::Never) => (0, Pages::Small, "--pages=small".into()),
        (Some(Why::AnyPage), Wish::Huge { required }) => copied(links, layout, &offsets, required),
        (Some(why), _) => (0, Pages::Small, why.to_string()),
        (None, _) => tried(code::trial(&link.opened, &offsets), offsets.len()),
    };
    if wish == (Wish::Huge { required: true }) && blocks < offsets.len().max(1) {
        why += NOT_SO;
    }
    Row { region: "code", file: None, size: Some(code::code_bytes(layout)), blocks: Some(blocks as u64), pages, why }
}

/// Code of a program that is loaded at any page, where large pages are insisted on: in an aligned copy.
fn copied(links: &[Link], layout: &Layout, offsets: &[u64], required: bool) -> (usize, Pages, String) {
    match code::copy_foreseen(links, layout, required, &|name| std::env::var_os(name)) {
        Err(why) => (0, Pages::Small, why.to_string()),
        Ok(_) if os::large_pages_are_off() => (0, Pages::Small, Why::Off.to_string()),
        Ok((cache, None)) => {
            let why = format!("the next run writes an aligned copy of it to {} and runs that", cache.display());
            (offsets.len(), Pages::Large, why)
        }
        Ok((_, Some(copy))) => {
            let (blocks, pages, why) = tried(code::trial(&copy.file, offsets), offsets.len());
            (blocks, pages, format!("as an aligned copy, {}: {why}", copy.path.display()))
        }
    }
}

/// Blocks of code on large pages after the next start, and why.
fn tried(warmth: code::Warmth, of: usize) -> (usize, Pages, String) {
    match warmth.why {
        None => (of, Pages::Large, "its file is in the page cache as large pages".into()),
        Some(Why::Ready) => (of, Pages::Large, "the next start reads its file as large pages".into()),
        Some(why) if warmth.large == 0 => (0, Pages::Small, why.to_string()),
        Some(why) => (warmth.large, Pages::Large, format!("{} blocks are not: {why}", of - warmth.large)),
    }
}

fn library_code(library: Library, offsets: &[u64], small_wanted: bool) -> Row {
    let (blocks, pages, why) = match small_wanted {
        true => (0, Pages::Small, "--pages=small".into()),
        false => tried(code::trial(&library.file, offsets), offsets.len()),
    };
    let size = Some(code::code_bytes(&library.layout));
    Row { region: "library code", file: Some(library.path), size, blocks: Some(blocks as u64), pages, why }
}

impl Pages {
    fn word(self) -> &'static str {
        match self {
            Pages::Gigantic => "1 GiB",
            Pages::Large => "2 MiB",
            Pages::Middle => "64 KiB",
            Pages::Small => "4 KiB",
            Pages::None => "-",
        }
    }
}

fn headline(links: &[Link], entry: &Entry) -> String {
    let shown: Vec<_> = links.iter().map(|link| link.file.display().to_string()).collect();
    let entered = match entry {
        Entry::Library => "Ream enters it".to_owned(),
        Entry::Start(_) => "statically linked: large pages only, cannot be paged".to_owned(),
        Entry::Not(why) => why.clone(),
        Entry::Never(why) => format!("ream run does not start it: {why}"),
    };
    format!("{}: {entered}", shown.join(", run by "))
}

fn as_text(links: &[Link], entry: &Entry, rows: &[Row]) -> String {
    let dash = || "-".to_owned();
    let mut cells = vec![["", "SIZE", "BLOCKS", "PAGES", "WHY"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let file = row.file.as_deref().and_then(Path::file_name).map(|name| format!("{}: ", name.to_string_lossy()));
        [
            row.region.to_owned(),
            row.size.map_or_else(dash, |size| show_size(size).to_string()),
            row.blocks.map_or_else(dash, |blocks| blocks.to_string()),
            row.pages.word().to_owned(),
            file.unwrap_or_default() + &row.why,
        ]
    }));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(width).collect();
    let mut text = headline(links, entry) + "\n";
    for [region, size, blocks, pages, why] in &cells {
        let [a, b, c, d] = [widths[0], widths[1], widths[2], widths[3]];
        text += format!("{region:a$}  {size:>b$}  {blocks:>c$}  {pages:>d$}  {why}").trim_end();
        text += "\n";
    }
    text
}

fn as_json(links: &[Link], entry: &Entry, rows: &[Row]) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
    let path = |path: &Path| quoted(&path.to_string_lossy());
    let files: Vec<_> = links.iter().map(|link| path(&link.file)).collect();
    let lines: Vec<_> = rows
        .iter()
        .map(|row| {
            let page = match row.pages {
                Pages::Gigantic => "1073741824",
                Pages::Large => "2097152",
                Pages::Middle => "65536",
                Pages::Small => "4096",
                Pages::None => "null",
            };
            format!(
                "    {{\"region\": {}, \"file\": {}, \"size\": {}, \"blocks\": {}, \"page\": {page}, \"why\": {}}}",
                quoted(row.region),
                row.file.as_deref().map_or_else(|| "null".to_owned(), path),
                number(row.size),
                number(row.blocks),
                quoted(&row.why)
            )
        })
        .collect();
    format!(
        "{{\n  \"version\": {},\n  \"run\": [{}],\n  \"entered\": {},\n  \"summary\": {},\n  \"regions\": [\n{}\n  ]\n}}\n",
        quoted(env!("CARGO_PKG_VERSION")),
        files.join(", "),
        entry.is_good(),
        quoted(&headline(links, entry)),
        lines.join(",\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked_at(words: &[&str], json: bool) -> (String, i32) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let settings = Settings::settle("doctor", Vec::new(), &|_| None, Vec::new()).unwrap();
        report(&settings, &words, json).unwrap()
    }

    #[test]
    fn every_region_of_this_program_has_a_row() {
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap();
        let (text, status) = looked_at(&[own, "argument"], false);
        assert!(status == 0 && text.starts_with(&format!("{own}: Ream enters it\n")), "{text}");
        let (json, _) = looked_at(&[own], true);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        for region in ["heap", "static data", "main stack", "thread stacks", "shared memory", "code"] {
            assert!(text.lines().any(|line| line.starts_with(region)), "{region}: {text}");
            let row = json["regions"].as_array().unwrap().iter().find(|row| row["region"] == region).unwrap();
            assert!(!row["why"].as_str().unwrap().is_empty());
        }
    }

    /// What is not to be had is what a run says, too.
    #[test]
    fn rows_follow_what_is_granted() {
        let row = || main_stack(Some(8 << 20));
        let after = |size, granted, missing: Option<&str>| {
            let (mut row, choice) = (row(), PageChoice { size, ..ream_options::pages::DEFAULT_PAGES[HEAP] });
            as_granted(&mut row, HEAP, choice, &(granted, Granted::Small, missing.map(str::to_owned)), true);
            (row.pages, row.blocks, row.why)
        };
        assert_eq!(after(MIDDLE, Granted::Small, Some("none")), (Pages::Small, Some(0), "none".to_owned()));
        assert_eq!(after(MIDDLE, Granted::Plain, None).0, Pages::Middle);
        assert_eq!(after(SMALL, Granted::Small, None).2, "--pages=heap=small");
        assert_eq!(after(HUGETLB, Granted::Hugetlb, None), (Pages::Large, row().blocks, row().why + "; of the pool"));
        assert_eq!(after(HUGETLB + 1, Granted::Gigantic, None).0, Pages::Gigantic);
        let lacking = after(HUGETLB, Granted::Huge, Some("the pool is empty"));
        assert!(lacking.0 == Pages::Large && lacking.2.starts_with("the pool is empty; "), "{lacking:?}");
    }

    #[test]
    fn stacks_follow_their_limit() {
        let main = |limit| (main_stack(limit).pages, main_stack(limit).blocks.unwrap());
        assert_eq!(main(Some(8 << 20)), (Pages::Large, 2));
        assert_eq!(main(Some(2 << 20)), (Pages::Small, 0));
        assert_eq!(main(None), (Pages::Large, 31));
        assert_eq!(thread_stacks(Some(8 << 20), &Entry::Library, false).pages, Pages::Large);
        assert_eq!(thread_stacks(None, &Entry::Library, false).pages, Pages::Small);
        assert_eq!(thread_stacks(Some(8 << 20), &Entry::Start(None), false).pages, Pages::Small);
        assert_eq!(thread_stacks(Some(8 << 20), &Entry::Start(None), true).pages, Pages::Large);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let settings = Settings::settle("doctor", Vec::new(), &|_| None, Vec::new()).unwrap();
        let failure = report(&settings, &["/no/such/program".into()], false).unwrap_err();
        assert_eq!(failure.status, crate::failure::NOT_FOUND);
    }
}
