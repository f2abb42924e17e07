//! The real machine against the real kernel: every promise of the seam that a fake could only repeat, on every engine.
//! Needs a full userfaultfd, so root, and Linux 6.8; says so and passes otherwise.

/// Makes tests of functions that take an engine: `every` engine, or only the one that moves pages and uses io_uring.
macro_rules! on_engines {
    (every: [$($every:ident),* $(,)?], moving: [$($moving:ident),* $(,)?]) => {
        on_engines!(@one moving_with_ring MOVE_RING $($every)* $($moving)*);
        on_engines!(@one moving_with_threads MOVE_THREADS $($every)*);
        on_engines!(@one copying_with_ring COPY_RING $($every)*);
        on_engines!(@one copying_with_threads COPY_THREADS $($every)*);
    };
    (@one $engine:ident $value:ident $($name:ident)*) => {
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
mod compaction;
mod faults;
mod guards;
mod io;
mod moves;
mod races;
mod sparse;
