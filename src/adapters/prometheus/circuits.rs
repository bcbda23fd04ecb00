//! The circuits of one server, one for each namespace: who asks for too much opens its own.
//!
//! A query that times out may be an expensive one, also where the server says so itself. Only if the queries of several
//! namespaces time out, and none is answered in between, does the server hang: then all circuits are open, and each
//! namespace has its own next attempt.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    adapters::breaker::{Breaker, FAILURES},
    clock::Monotonic,
};

/// The queries of this many namespaces show that a server hangs: two may both be expensive.
const SEVERAL: usize = 3;
/// How many namespaces are known at once.
const MAX_KNOWN: usize = 1_024;

/// The circuits of one server.
#[derive(Debug, Default)]
pub(super) struct Circuits(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    breakers: BTreeMap<Arc<str>, Breaker>,
    /// How many requests have timed out since the last answer to any.
    timeouts: u32,
    /// Whose they were.
    silent: BTreeSet<Arc<str>>,
}

// === impl Circuits ===

impl Circuits {
    /// Whether a request for this namespace may be sent now; if not, how long until its next attempt.
    pub(super) fn admit(&self, namespace: &Arc<str>, now: Monotonic) -> Result<(), Duration> {
        let mut state = self.state();
        let hangs = state.hangs();
        let breaker = state.breaker(namespace);
        if hangs && !breaker.is_open() {
            *breaker = Breaker::opened(now);
        }
        breaker.admit(now)
    }

    /// Records that a request for this namespace was answered, or that it was not in time.
    pub(super) fn record(&self, namespace: &Arc<str>, answered: bool, now: Monotonic) {
        let mut state = self.state();
        state.breaker(namespace).record(answered, now);
        if answered {
            state.timeouts = 0;
            state.silent.clear();
        } else {
            state.timeouts = state.timeouts.saturating_add(1);
            state.silent.insert(Arc::clone(namespace));
        }
    }

    /// Whether the last requests, whosever they were, have timed out.
    pub(super) fn are_all_open(&self) -> bool {
        self.state().timeouts >= FAILURES
    }

    /// No holder of this lock can leave the state half-changed, so a poisoned lock is still usable.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn hangs(&self) -> bool {
        self.timeouts >= FAILURES && self.silent.len() >= SEVERAL
    }

    fn breaker(&mut self, namespace: &Arc<str>) -> &mut Breaker {
        if self.breakers.len() >= MAX_KNOWN && !self.breakers.contains_key(namespace) {
            self.breakers.retain(|_, breaker| breaker.is_open());
        }
        self.breakers.entry(Arc::clone(namespace)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::after_origin(Duration::from_secs(seconds))
    }

    fn time_out(circuits: &Circuits, namespace: &str, times: u32) {
        for _request in 0..times {
            circuits.record(&namespace.into(), false, at(0));
        }
    }

    #[test]
    fn expensive_queries_of_one_namespace_or_of_two_refuse_nobody_else() {
        let circuits = Circuits::default();
        time_out(&circuits, "heavy", 200);
        time_out(&circuits, "large", 200);
        for (namespace, is_admitted) in [("heavy", false), ("large", false), ("shop", true)] {
            let admitted = circuits.admit(&namespace.into(), at(1));
            assert_eq!(admitted.is_ok(), is_admitted, "{namespace}");
        }
    }

    #[test]
    fn timeouts_of_several_namespaces_with_an_answer_in_between_do_not_show_that_a_server_hangs() {
        let circuits = Circuits::default();
        for namespace in ["a", "b", "c", "d", "e", "f"] {
            time_out(&circuits, namespace, 2);
            circuits.record(&"shop".into(), true, at(0));
        }
        assert_eq!(circuits.admit(&"bank".into(), at(1)), Ok(()));
        assert!(!circuits.are_all_open());
    }

    #[test]
    fn a_server_that_answers_no_namespace_is_asked_once_by_each_until_one_is_answered() {
        let circuits = Circuits::default();
        for namespace in ["a", "b", "c", "a", "b"] {
            time_out(&circuits, namespace, 1);
        }
        assert!(circuits.are_all_open());
        let (bank, shop) = ("bank".into(), "shop".into());
        for namespace in [&bank, &shop] {
            assert!(circuits.admit(namespace, at(1)).is_err());
            assert_eq!(circuits.admit(namespace, at(6)), Ok(()));
            assert!(circuits.admit(namespace, at(6)).is_err(), "only one");
        }
        circuits.record(&bank, true, at(7));
        assert!(!circuits.are_all_open());
        assert_eq!(circuits.admit(&bank, at(7)), Ok(()));
        assert_eq!(circuits.admit(&"new".into(), at(7)), Ok(()));
    }
}
