//! Circuits of a metrics API or of a Prometheus: while one is open, the reads of one namespace, or of all, fail at
//! once.
//!
//! An expensive query of one namespace may hang while the server answers all other namespaces. Each namespace therefore
//! has its own circuit. The shared circuit opens after [`FAILURES`] timeouts in a row if they belong to `NAMESPACES`
//! namespaces, or one belongs to a request about no namespace, and if the server answered no request while they waited.
//!
//! While the shared circuit is open, one request at a time is the attempt that may close it. A namespace whose last
//! request was answered, or that is unknown, may make the attempt at once, and any other after the pause of its
//! [`Breaker`]. No namespace makes two attempts within `ATTEMPT_INTERVAL`, so that one whose requests hang does not
//! keep the circuit open for the others.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    breaker::{Breaker, FAILURES},
    clock::Monotonic,
};

/// Number of namespaces that must time out before the shared circuit opens.
const NAMESPACES: usize = 3;
/// The least time between two attempts of a namespace for the shared circuit. It is long enough for every other
/// namespace to sync once: the sum of
///
/// - 5 s, the timeout of a read of metrics (`leadership::WRITE_TIME`, which `api_server::client` uses for all requests;
///   a Prometheus has 10 s),
/// - 5 s, the pause after it (`OPEN_FOR` of [`Breaker`]),
/// - 15 s, the default of `--sync-period` (`config::args`).
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(5 + 5 + 15);
/// Time for which a timeout is remembered if no request follows it.
const REMEMBERED: Duration = Duration::from_mins(2);
/// Maximum number of namespaces that are remembered.
const MAX_REMEMBERED: usize = 256;

/// The circuits of one API.
#[derive(Debug, Default)]
pub struct Circuits {
    all: Breaker,
    /// The namespaces with timeouts since the last answer, up to [`NAMESPACES`]; none stands for requests about no
    /// namespace.
    silent: Vec<Option<String>>,
    /// The last answer.
    answered: Option<Monotonic>,
    /// The last timeout of a request during which no other was answered; absent after an answer.
    timed_out: Option<Monotonic>,
    /// The namespaces whose last request timed out.
    namespaces: BTreeMap<String, Unanswered>,
}

/// The circuit of a namespace whose last request timed out.
#[derive(Debug)]
struct Unanswered {
    own: Breaker,
    /// The time of the last attempt for the shared circuit.
    attempted: Option<Monotonic>,
    changed: Monotonic,
}

/// A circuit that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// True if it is the circuit of the namespace, rather than the shared one.
    pub is_of_namespace: bool,
    /// The time until the next attempt.
    pub retry_in: Duration,
}

// === impl Circuits ===

impl Circuits {
    /// Permits a request now. A request that is admitted while a circuit is open is the attempt, and must be sent.
    ///
    /// # Errors
    /// The circuit of the namespace or the shared one is open.
    pub fn admit(&mut self, namespace: Option<&str>, now: Monotonic) -> Result<(), Open> {
        self.check(namespace, now)?;
        let is_attempt = self.all.is_open();
        self.all.attempt(now);
        let Some(namespace) = namespace else {
            return Ok(());
        };
        if is_attempt {
            self.unanswered(namespace, now).attempted = Some(now);
        }
        if let Some(known) = self.namespaces.get_mut(namespace) {
            known.own.attempt(now);
        }
        Ok(())
    }

    /// Permits a request that is sent later and does not become the attempt, unlike with [`Circuits::admit`].
    ///
    /// # Errors
    /// As [`Circuits::admit`].
    pub fn check(&self, namespace: Option<&str>, now: Monotonic) -> Result<(), Open> {
        let refused = |is_of_namespace| {
            move |retry_in| Open {
                is_of_namespace,
                retry_in,
            }
        };
        let known = namespace.and_then(|namespace| self.namespaces.get(namespace));
        let known = known.filter(|known| is_recent(known.changed, now));
        if let Some(known) = known {
            known.own.check(now).map_err(refused(true))?;
        } else if namespace.is_some() && matches!(self.all, Breaker::Open(_)) {
            // The last request of the namespace was answered, or it is unknown: it may make the attempt before the
            // pause ends.
            return Ok(());
        }
        self.all.check(now).map_err(refused(false))?;
        let next_attempt = known.and_then(|known| Some(known.attempted? + ATTEMPT_INTERVAL));
        match next_attempt {
            Some(next) if self.all.is_open() && now < next => Err(refused(false)(next.since(now))),
            _ => Ok(()),
        }
    }

    /// Records an answer.
    pub fn answered(&mut self, namespace: Option<&str>, now: Monotonic) {
        self.all = Breaker::default();
        self.silent.clear();
        self.answered = Some(now);
        self.timed_out = None;
        // Only the circuit of the namespace: another one may have a query that hangs while the server answers this one.
        namespace.map(|namespace| self.namespaces.remove(namespace));
    }

    /// Records that a request was not answered in time.
    pub fn timed_out(&mut self, namespace: Option<&str>, sent: Monotonic, now: Monotonic) {
        if let Some(namespace) = namespace {
            let known = self.unanswered(namespace, now);
            known.own.record(false, now);
            known.changed = now;
        }
        // A server that answers another request during the wait does not hang.
        if self.answered.is_none_or(|answered| answered <= sent) {
            self.timed_out_for_all(namespace, now);
        }
    }

    fn timed_out_for_all(&mut self, namespace: Option<&str>, now: Monotonic) {
        if !self.all.is_open() && self.timed_out.is_some_and(|at| !is_recent(at, now)) {
            self.all = Breaker::default();
            self.silent.clear();
        }
        self.timed_out = Some(now);
        let namespace = namespace.map(str::to_owned);
        if self.silent.len() < NAMESPACES && !self.silent.contains(&namespace) {
            self.silent.push(namespace);
        }
        if self.silent.len() == NAMESPACES || self.silent.contains(&None) {
            self.all.record(false, now);
        } else {
            self.all.count();
        }
    }

    /// True if the API has not responded to [`FAILURES`] requests in a row, even if all belong to one namespace.
    pub fn is_hanging(&self, now: Monotonic) -> bool {
        let failed = match self.all {
            Breaker::Closed(timeouts) => timeouts >= FAILURES,
            Breaker::Open(_) | Breaker::HalfOpen(_) => true,
        };
        failed && self.timed_out.is_some_and(|at| is_recent(at, now))
    }

    /// True if no timeout is remembered any more.
    pub fn is_forgettable(&self, now: Monotonic) -> bool {
        let mut changes = self.namespaces.values().map(|known| known.changed);
        !changes.any(|at| is_recent(at, now))
            && !self.timed_out.is_some_and(|at| is_recent(at, now))
    }

    fn unanswered(&mut self, namespace: &str, now: Monotonic) -> &mut Unanswered {
        self.namespaces
            .retain(|_, known| is_recent(known.changed, now));
        if self.namespaces.len() >= MAX_REMEMBERED && !self.namespaces.contains_key(namespace) {
            let oldest = self.namespaces.iter().min_by_key(|(_, it)| it.changed);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.namespaces.remove(&oldest);
            }
        }
        self.namespaces
            .entry(namespace.to_owned())
            .or_insert_with(|| Unanswered {
                own: Breaker::default(),
                attempted: None,
                changed: now,
            })
    }
}

fn is_recent(at: Monotonic, now: Monotonic) -> bool {
    now.since(at) < REMEMBERED
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::after_origin(Duration::from_secs(seconds))
    }

    fn of_all(seconds: u64) -> Result<(), Open> {
        Err(Open {
            is_of_namespace: false,
            retry_in: Duration::from_secs(seconds),
        })
    }

    fn of_namespace(seconds: u64) -> Result<(), Open> {
        Err(Open {
            is_of_namespace: true,
            retry_in: Duration::from_secs(seconds),
        })
    }

    impl Circuits {
        /// Lets as many requests of each namespace as given, sent at one second, time out at another.
        fn time_out(&mut self, requests: &[(Option<&str>, u32)], sent: u64, now: u64) {
            for (namespace, count) in requests {
                for _request in 0..*count {
                    self.timed_out(*namespace, at(sent), at(now));
                }
            }
        }

        /// Circuits that three namespaces opened for all at second 5.
        fn opened() -> Self {
            let mut circuits = Self::default();
            let requests = [(Some("a"), 2), (Some("b"), 2), (Some("c"), 1)];
            circuits.time_out(&requests, 0, 5);
            circuits
        }
    }

    #[test]
    fn timeouts_of_two_namespaces_open_only_their_own_circuits() {
        let mut circuits = Circuits::default();
        circuits.time_out(&[(Some("shop"), 8), (Some("mall"), 8)], 0, 5);
        for (namespace, admitted) in [
            (Some("shop"), of_namespace(5)),
            (Some("mall"), of_namespace(5)),
            (Some("bank"), Ok(())),
            (None, Ok(())),
        ] {
            assert_eq!(circuits.admit(namespace, at(5)), admitted, "{namespace:?}");
        }
        assert!(circuits.is_hanging(at(5)), "no request was answered");
        circuits.answered(Some("bank"), at(6));
        assert!(!circuits.is_hanging(at(6)));
        assert_eq!(circuits.admit(Some("shop"), at(6)), of_namespace(4));
        assert_eq!(circuits.admit(Some("shop"), at(10)), Ok(()));
        assert_eq!(circuits.admit(Some("shop"), at(10)), of_namespace(5));
        circuits.answered(Some("shop"), at(11));
        assert_eq!(circuits.admit(Some("shop"), at(11)), Ok(()));
    }

    #[test]
    fn timeouts_of_three_namespaces_open_the_shared_circuit() {
        let mut circuits = Circuits::opened();
        assert!(circuits.is_hanging(at(5)));
        assert_eq!(circuits.admit(Some("a"), at(6)), of_all(4));
        assert_eq!(circuits.admit(None, at(6)), of_all(4));
        // A namespace without timeouts makes the attempt.
        assert_eq!(circuits.admit(Some("bank"), at(6)), Ok(()));
        for namespace in [Some("bank"), Some("mall"), Some("a"), None] {
            assert_eq!(circuits.admit(namespace, at(7)), of_all(4), "{namespace:?}");
        }
        circuits.answered(Some("bank"), at(8));
        for namespace in [Some("bank"), Some("mall"), Some("a"), None] {
            assert_eq!(circuits.admit(namespace, at(8)), Ok(()), "{namespace:?}");
        }
    }

    #[test]
    fn a_timeout_of_a_request_about_no_namespace_opens_the_shared_circuit() {
        let mut circuits = Circuits::default();
        circuits.time_out(&[(Some("shop"), 4), (None, 1)], 0, 5);
        assert_eq!(circuits.check(None, at(5)), of_all(5));
    }

    #[test]
    fn an_answer_during_the_wait_keeps_the_shared_circuit_closed() {
        let mut circuits = Circuits::default();
        circuits.answered(Some("bank"), at(3));
        circuits.time_out(&[(Some("a"), 8), (Some("b"), 8), (Some("c"), 8)], 2, 7);
        assert_eq!(circuits.check(Some("bank"), at(7)), Ok(()));
        assert_eq!(circuits.check(Some("a"), at(7)), of_namespace(5));
        assert!(!circuits.is_hanging(at(7)));
    }

    #[test]
    fn a_namespace_makes_no_second_attempt_within_the_interval() {
        let mut circuits = Circuits::opened();
        assert_eq!(circuits.admit(Some("a"), at(10)), Ok(()));
        circuits.timed_out(Some("a"), at(10), at(15));
        assert_eq!(circuits.admit(Some("a"), at(20)), of_all(15));
        assert_eq!(circuits.admit(Some("b"), at(20)), Ok(()));
        circuits.timed_out(Some("b"), at(20), at(25));
        // No other namespace has sent a request.
        assert_eq!(circuits.admit(Some("a"), at(35)), Ok(()));
    }

    #[test]
    fn timeouts_are_forgotten_after_two_minutes_and_beyond_256_namespaces() {
        let mut circuits = Circuits::default();
        circuits.time_out(&[(Some("shop"), 5)], 0, 5);
        assert!(!circuits.is_forgettable(at(124)) && circuits.is_hanging(at(124)));
        assert!(circuits.is_forgettable(at(125)) && !circuits.is_hanging(at(125)));
        circuits.time_out(&[(Some("b"), 1), (Some("c"), 1)], 120, 125);
        assert_eq!(circuits.check(Some("shop"), at(125)), Ok(()));
        for n in 0..2 * MAX_REMEMBERED {
            circuits.timed_out(Some(&n.to_string()), at(120), at(126));
        }
        assert_eq!(circuits.namespaces.len(), MAX_REMEMBERED);
    }

    proptest! {
        #[test]
        fn two_namespaces_never_open_the_circuit_of_a_third(
            requests in prop::collection::vec((0..2_usize, 0..6_u64, any::<bool>()), 0..100),
        ) {
            let mut circuits = Circuits::default();
            let mut now = 10;
            for (namespace, passed, answered) in requests {
                let namespace = ["shop", "mall"].get(namespace).copied();
                now += passed;
                if circuits.admit(namespace, at(now)).is_ok() {
                    if answered {
                        circuits.answered(namespace, at(now));
                    } else {
                        circuits.timed_out(namespace, at(now - 5), at(now));
                    }
                }
                prop_assert_eq!(circuits.check(Some("bank"), at(now)), Ok(()));
            }
        }
    }
}
