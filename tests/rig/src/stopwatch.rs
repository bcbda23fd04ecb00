//! Durations of the tests with a cluster: a line when the thread of a test ends. The harness of stable Rust does not
//! print them.

use std::{cell::OnceCell, thread, time::Instant};

use crate::place::say;

thread_local! {
    static RUNNING: OnceCell<Stopwatch> = const { OnceCell::new() };
}

/// Runs from the first cluster of a test to the end of its thread.
struct Stopwatch {
    test: String,
    begin: Instant,
}

/// Begins to measure the test of this thread, if it is one that the harness named after a test.
#[expect(
    clippy::disallowed_methods,
    reason = "only a message to the user shows how long a test took"
)]
pub(crate) fn begin() {
    let thread = thread::current();
    // Workers of tokio have a hyphen in their names; with one thread for all tests it is the main one.
    let is_test = |name: &&str| *name != "main" && !name.contains('-');
    let Some(test) = thread.name().filter(is_test) else {
        return;
    };
    RUNNING.with(|running| {
        running.get_or_init(|| Stopwatch {
            test: test.to_owned(),
            begin: Instant::now(),
        });
    });
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        let seconds = self.begin.elapsed().as_secs();
        say(&format!("{seconds:>4} s  {}", self.test));
    }
}
