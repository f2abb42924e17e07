//! What /proc/self/smaps says of the worker as a whole, and which libraries it has.

/// Prints what is in RAM and on large pages, in KiB, how many mappings were advised, and the libraries.
pub fn say() {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let [mut resident, mut large, mut pool, mut advised] = [0u64; 4];
    let mut libraries: Vec<&str> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match name {
            "Rss:" => resident += number(),
            "AnonHugePages:" | "ShmemPmdMapped:" => large += number(),
            // Not part of what Rss counts.
            "Private_Hugetlb:" | "Shared_Hugetlb:" => pool += number(),
            "VmFlags:" => advised += u64::from(words.any(|flag| flag == "hg")),
            _ if name.ends_with(':') => {}
            _ => {
                if let Some(path) = line.split_whitespace().nth(5).filter(|path| path.contains(".so")) {
                    if libraries.last() != Some(&path) {
                        libraries.push(path);
                    }
                }
            }
        }
    }
    println!("all {} {} {pool} {advised}", resident + pool, large + pool);
    for library in libraries {
        println!("library {library}");
    }
}
