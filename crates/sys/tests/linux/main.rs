//! The real machine against the real kernel: every promise of the seam that a fake could only repeat, on every engine.
//! Needs a full userfaultfd, so root, and Linux 6.8; says so and passes otherwise.

/// Makes tests of functions that take an engine.
macro_rules! on_engines {
    ($($engine:ident = $value:ident: $tests:tt;)*) => { $(on_engines!(@one $engine $value $tests);)* };
    (@one $engine:ident $value:ident { $($name:ident),* $(,)? }) => {
        mod $engine {
            $(
                #[test]
                fn $name() {
                    super::$name(crate::bed::Engine::$value);
                }
            )*
        }
    };
}

mod bed;
mod faults;
mod io;
mod moves;
mod races;
