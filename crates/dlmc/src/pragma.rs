//! Uses of arrays in pragmas: the compiler's parser reads them, the C parser does not.

use crate::Problem;
use crate::token::{Kind, Token, tokens_within};

/// Clauses of OpenMP in which an array stands as a value, or as memory: it is written as everywhere else.
const VALUES: &[&str] = &[
    "if",
    "num_threads",
    "final",
    "schedule",
    "dist_schedule",
    "priority",
    "grainsize",
    "num_tasks",
    "depend",
    "num_teams",
    "thread_limit",
    "safelen",
    "simdlen",
    "hint",
    "device",
    "filter",
    "detach",
    "collapse",
    "ordered",
];

/// Finds the names in a pragma that are arrays (`is_array` says which), where they are to be replaced.
///
/// # Errors
/// Where a clause makes something of the array that cannot be made of what the pointer points to.
pub fn uses(source: &str, line: &Token, is_array: &dyn Fn(&Token) -> bool) -> Result<Vec<Token>, Problem> {
    let words = tokens_within(source, line.start + 1, line.end);
    let text = |index: usize| words.get(index).map_or("", |word: &Token| word.of(source));
    if text(0) != "pragma" {
        return Ok(Vec::new());
    }
    let openmp = match text(1) {
        // Names parameters of the function that follows.
        "omp" if text(2) == "declare" && matches!(text(3), "simd" | "variant" | "reduction") => return Ok(Vec::new()),
        "omp" => true,
        "acc" | "weak" | "redefine_extname" | "scalar_storage_order" => false,
        _ => return Ok(Vec::new()),
    };
    let mut found = Vec::new();
    let (mut depth, mut clause, mut open) = (0usize, "", 0);
    for (index, word) in words.iter().enumerate().skip(2) {
        match text(index) {
            "(" => {
                if depth == 0 {
                    (clause, open) = (text(index - 1), index);
                }
                depth += 1;
            }
            ")" => depth = depth.saturating_sub(1),
            kind @ ("private" | "firstprivate") if depth == 1 && clause == "default" => {
                return Err(Problem::at(
                    word.start,
                    format!("default({kind}) would copy a dlm array's address, not the array"),
                ));
            }
            name if word.kind == Kind::Word && is_array(word) && (depth > 0 || !openmp) => {
                // depend(in: ...): its kind, whatever it is called; critical(name): no object.
                let modifier = index == open + 1 && text(index + 1) == ":";
                match clause {
                    _ if modifier => {}
                    // The address is shared, and so is what it points to.
                    "shared" | "critical" => {}
                    _ if openmp && VALUES.contains(&clause) => found.push(*word),
                    _ if openmp => {
                        return Err(Problem::at(
                            word.start,
                            format!("{name} is a dlm array, which {clause}() cannot name"),
                        ));
                    }
                    _ => {
                        return Err(Problem::at(
                            word.start,
                            format!("{name} is a dlm array, which this pragma cannot name"),
                        ));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    fn found(source: &str) -> Option<usize> {
        let line = tokens(source)[0];
        uses(source, &line, &|word| matches!(word.of(source), "a" | "out" | "parallel")).ok().map(|found| found.len())
    }

    #[test]
    fn clauses() {
        assert_eq!(found("#pragma omp parallel for shared(a) if(a[0] > 1) private(i)"), Some(1));
        assert_eq!(found("#pragma omp task depend(out: out[1], a[2])"), Some(2));
        assert_eq!(found("#pragma omp parallel default(none) shared(a)"), Some(0));
        assert_eq!(found("#pragma omp parallel default(firstprivate)"), None);
        assert_eq!(found("#pragma omp critical(a)"), Some(0));
        assert_eq!(found("#pragma omp parallel for private(a)"), None);
        assert_eq!(found("#pragma omp parallel for reduction(+:s, a[:3])"), None);
        assert_eq!(found("#pragma omp threadprivate(a)"), None);
        assert_eq!(found("#pragma omp declare simd linear(a)"), Some(0));
        assert_eq!(found("#pragma weak a"), None);
        assert_eq!(found("#pragma GCC unroll a"), Some(0));
        assert_eq!(found("# 1 \"a\""), Some(0));
    }
}
