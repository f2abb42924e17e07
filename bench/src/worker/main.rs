//! Worker.
fn main() {}
