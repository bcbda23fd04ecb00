//! Runs the same work on every trace, two traces at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use foretide_replay::Trace;

use crate::Failure;

/// The results of `work` for each trace, in order of the traces. `work` is called with the index of the trace,
/// `progress` with a line for each finished trace.
pub(crate) fn map<T: Send>(
    traces: &[Trace],
    progress: &(dyn Fn(&str) + Sync),
    work: impl Fn(usize, &Trace) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(Vec::new());
    let worker = || {
        while let Some((at, trace)) = pick(traces, &next) {
            let result = work(at, trace).map_err(|error| format!("{}: {error}", trace.name));
            let n = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(&format!("{n:3} of {}: {}", traces.len(), trace.name));
            if let Ok(mut results) = results.lock() {
                results.push((at, result));
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(worker);
        scope.spawn(worker);
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_unstable_by_key(|(at, _)| *at);
    let results = results.into_iter().map(|(_, result)| Ok(result?));
    results.collect()
}

fn pick<'a>(traces: &'a [Trace], next: &AtomicUsize) -> Option<(usize, &'a Trace)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    traces.get(at).map(|trace| (at, trace))
}
