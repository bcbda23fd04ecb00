//! The connection to one member cluster: its stores, and whether it answers.
//!
//! A probe asks the member for `/readyz` every few seconds, because a quiet cluster sends nothing on its watches for
//! most of a minute, and an unreachable one sends nothing at all. The results of the probe and the age of the watches
//! give the [`Health`] of the member. What the health of a member means for a fleet is decided in `domain::federate`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::kubeconfig::Access;
use crate::{
    adapters::{api_server::CallError, kube::KubeMember},
    clock::Clock,
    domain::federate::Health,
    ports::Workloads as _,
};

/// How long a member may be silent before it counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Time between two probes.
    pub probe_period: SignedDuration,
    /// Without a successful probe for longer than this it is lost.
    pub lost_after: SignedDuration,
    /// With a watch that received nothing for longer than this it is lost; a quiet watch is renewed every 50 s.
    pub watch_silence: SignedDuration,
}

/// One connection to a member; its tasks end when it is dropped.
pub(super) struct MemberConnection {
    pub(super) access: Access,
    pub(super) cluster: Arc<KubeMember>,
    probe: Arc<HealthProbe>,
    timeouts: Timeouts,
    clock: Clock,
    _tasks: JoinSet<()>,
}

/// The problem of a member that answers with HTTP 401.
pub(super) const UNAUTHORIZED: &str =
    "credentials rejected (HTTP 401); renew them in the Secret of the member";

/// The state of the watches; wall-clock times.
struct WatchState {
    /// When the quietest of them last received something.
    heard: Option<Timestamp>,
    /// Whether every first list is complete.
    synced: bool,
    /// Why one of them fails.
    failing: Option<String>,
}

/// Asks a member for `/readyz` periodically.
#[derive(Debug)]
struct HealthProbe(Mutex<ProbeState>);

/// The results of the probe; wall-clock times.
#[derive(Debug, Clone, PartialEq)]
struct ProbeState {
    /// When the member last answered, or when the probe started.
    answered: Timestamp,
    /// Since when it reports that it is not ready, and its message.
    unready: Option<(Timestamp, String)>,
    /// Why the last probe had no answer.
    unanswered: Option<String>,
    /// Whether the last answer was HTTP 401.
    unauthorized: bool,
}

/// The health of a member, and why.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HealthReport {
    /// Whether it answers. The time since which it is lost may lie in the future.
    pub(super) health: Health,
    /// What is wrong, for messages; always present for a member that is not ready.
    pub(super) problem: Option<String>,
    /// Whether the last answer was HTTP 401.
    pub(super) unauthorized: bool,
}

// === impl Timeouts ===

impl Timeouts {
    /// A member is lost when it did not answer for `lost_after`; until then it is probed at least three times, and at
    /// least every 10 s.
    #[must_use]
    pub fn new(lost_after: SignedDuration) -> Self {
        let longest = SignedDuration::from_secs(10);
        let third = lost_after.checked_div(3).unwrap_or(longest);
        Self {
            probe_period: third.min(longest),
            lost_after,
            // A quiet watch is renewed every 50 s, and one renewal may fail.
            watch_silence: SignedDuration::from_secs(90).max(lost_after),
        }
    }
}

// === impl MemberConnection ===

impl MemberConnection {
    /// Starts the watches and the probe.
    pub(super) fn open(
        name: &str,
        access: Access,
        cluster: Arc<KubeMember>,
        timeouts: Timeouts,
        clock: Clock,
    ) -> Self {
        let probe = Arc::new(HealthProbe::new());
        let mut tasks = JoinSet::new();
        let (watched, probed) = (cluster.clone(), cluster.clone());
        let span = tracing::info_span!("member", name);
        tasks.spawn(async move { watched.run().await }.instrument(span));
        tasks.spawn(probe.clone().run(probed, timeouts.probe_period));
        Self {
            access,
            cluster,
            probe,
            timeouts,
            clock,
            _tasks: tasks,
        }
    }

    /// Whether every store that a sync needs has seen a complete list.
    pub(super) fn is_synced(&self) -> bool {
        self.cluster.is_synced()
    }

    /// The health of the member now, on the controller's clock.
    pub(super) fn report(&self) -> HealthReport {
        let watches = WatchState {
            heard: self.cluster.last_contact(),
            synced: self.is_synced(),
            failing: self.cluster.failing(),
        };
        let age = |at| self.clock.wall_age(at);
        let state = self.probe.state().clone();
        let report = state.report(watches, &self.timeouts, age);
        HealthReport {
            health: on_clock(&self.clock, report.health),
            ..report
        }
    }

    /// Whether the member is ready now.
    pub(super) fn is_ready(&self) -> bool {
        self.report().health == Health::Ready
    }

    /// The age of the last answer to the probe, or of the last event of the quietest watch if that is older.
    pub(super) fn silence(&self) -> SignedDuration {
        let answered = self.probe.state().answered;
        let oldest = self
            .cluster
            .last_contact()
            .map_or(answered, |at| at.min(answered));
        self.clock.wall_age(oldest)
    }
}

fn on_clock(clock: &Clock, health: Health) -> Health {
    match health {
        Health::Ready => Health::Ready,
        Health::NotReady { since } => Health::NotReady {
            since: clock.from_wall(since),
        },
        Health::Unknown { since } => Health::Unknown {
            since: clock.from_wall(since),
        },
    }
}

// === impl HealthProbe ===

impl HealthProbe {
    fn new() -> Self {
        Self(Mutex::new(ProbeState {
            answered: Clock::system().now(),
            unready: None,
            unanswered: None,
            unauthorized: false,
        }))
    }

    /// Probes until it is dropped.
    async fn run(self: Arc<Self>, cluster: Arc<KubeMember>, period: SignedDuration) {
        loop {
            let answer = cluster.check_ready().await;
            self.state().record(answer, Clock::system().now());
            // Real time: a test clock that runs fast must not multiply requests.
            Clock::system().sleep(period).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, ProbeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ProbeState ===

impl ProbeState {
    fn record(&mut self, answer: Result<(), CallError>, now: Timestamp) {
        self.unauthorized = matches!(answer, Err(CallError::Status { code: 401, .. }));
        match answer {
            // Not an answer: with rejected credentials nothing can be read.
            Err(CallError::Status { code: 401, .. }) => self.unanswered = None,
            Err(CallError::Status {
                code: code @ 500..,
                message,
            }) => {
                self.answered(now);
                // Since the first such report, not the latest.
                let since = self.unready.take().map_or(now, |(since, _)| since);
                // A server may send a page of HTML, and this goes into a status.
                let message: String = message.chars().take(200).collect();
                self.unready = Some((since, format!("not ready (HTTP {code}): {message}")));
            }
            // Any other status is an answer too: the credentials may lack the permission, or a proxy the path.
            Ok(()) | Err(CallError::Status { .. }) => {
                self.answered(now);
                self.unready = None;
            }
            Err(other) => self.unanswered = Some(other.to_string()),
        }
    }

    fn answered(&mut self, now: Timestamp) {
        self.answered = now;
        self.unanswered = None;
    }

    /// The health on the wall clock; `age` gives the age of a time.
    fn report(
        self,
        watches: WatchState,
        timeouts: &Timeouts,
        age: impl Fn(Timestamp) -> SignedDuration,
    ) -> HealthReport {
        let answered = self.answered;
        let unknown = |last: Timestamp, timeout, problem: String, cause: Option<String>| {
            let since = last.saturating_add(timeout).unwrap_or(last);
            (Health::Unknown { since }, Some(with_cause(problem, cause)))
        };
        let (health, problem) = match watches.heard {
            // First, because a member that does not answer has no working watch either.
            _ if age(answered) > timeouts.lost_after => {
                let problem = format!("no answer since {answered:.0}");
                let cause = self.unanswered.or(watches.failing);
                unknown(answered, timeouts.lost_after, problem, cause)
            }
            Some(heard) if age(heard) > timeouts.watch_silence => {
                let problem = format!("no watch event since {heard:.0}");
                let cause = watches.failing.or(self.unanswered);
                unknown(heard, timeouts.watch_silence, problem, cause)
            }
            Some(_) if watches.synced => match self.unready {
                Some((since, problem)) => (Health::NotReady { since }, Some(problem)),
                // Ready so far; the problem is shown before the member counts as lost.
                None => (Health::Ready, self.unanswered.or(watches.failing)),
            },
            _ => {
                let problem = "the first list of its objects is not complete".to_owned();
                let cause = self.unanswered.or(watches.failing);
                unknown(answered, timeouts.lost_after, problem, cause)
            }
        };
        HealthReport {
            health,
            problem: if self.unauthorized {
                Some(UNAUTHORIZED.to_owned())
            } else {
                problem
            },
            unauthorized: self.unauthorized,
        }
    }
}

/// The problem, and its cause if that is known.
fn with_cause(problem: String, cause: Option<String>) -> String {
    match cause {
        Some(cause) => format!("{problem}: {cause}"),
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000 + second).unwrap()
    }

    fn answered_at_zero() -> ProbeState {
        ProbeState {
            answered: at(0),
            unready: None,
            unanswered: None,
            unauthorized: false,
        }
    }

    fn status(code: u16) -> Result<(), CallError> {
        Err(CallError::Status {
            code,
            message: "words".into(),
        })
    }

    /// The report at second `now`, when the watches last received an event at second `heard`.
    fn report(state: &ProbeState, now: i64, heard: Option<i64>, synced: bool) -> HealthReport {
        let watches = WatchState {
            heard: heard.map(at),
            synced,
            failing: None,
        };
        let timeouts = Timeouts::new(SignedDuration::from_secs(45));
        let age = |then| at(now).duration_since(then);
        state.clone().report(watches, &timeouts, age)
    }

    fn health(state: &ProbeState, now: i64, heard: Option<i64>, synced: bool) -> Health {
        report(state, now, heard, synced).health
    }

    #[test]
    fn a_member_is_lost_from_the_end_of_its_timeout() {
        let lost = |since| Health::Unknown { since: at(since) };
        for (now, heard, synced, expected) in [
            (0, Some(0), true, Health::Ready),
            (45, Some(0), true, Health::Ready),
            (46, Some(46), true, lost(45)),
            (400, Some(46), true, lost(45)),
            (10, None, false, lost(45)),
            (10, Some(10), false, lost(45)),
            (40, Some(-49), true, Health::Ready),
            (40, Some(-51), true, lost(39)),
        ] {
            let found = health(&answered_at_zero(), now, heard, synced);
            assert_eq!(
                found, expected,
                "at {now}, heard at {heard:?}, synced {synced}"
            );
        }
    }

    #[test]
    fn the_problem_of_a_lost_member_names_its_last_answer_and_the_error() {
        let problem = |state: &ProbeState, now, heard, synced| {
            let found = report(state, now, heard, synced);
            (found.problem.unwrap_or_default(), found.unauthorized)
        };
        let mut silent = answered_at_zero();
        silent.record(Err(CallError::Transport("reset".into())), at(30));
        let mut denied = silent.clone();
        denied.record(status(401), at(40));
        for (state, now, heard, synced, expected, unauthorized) in [
            (&answered_at_zero(), 10, Some(10), true, "", false),
            (&silent, 40, Some(40), true, "reset", false),
            (
                &silent,
                46,
                Some(46),
                true,
                "no answer since 1970-01-01T00:16:40Z: reset",
                false,
            ),
            (
                &answered_at_zero(),
                40,
                Some(-51),
                true,
                "no watch event since 1970-01-01T00:15:49Z",
                false,
            ),
            (
                &answered_at_zero(),
                10,
                None,
                false,
                "the first list of its objects is not complete",
                false,
            ),
            // Reported before the member counts as lost.
            (&denied, 41, Some(41), true, UNAUTHORIZED, true),
            (&denied, 100, Some(100), true, UNAUTHORIZED, true),
        ] {
            let expected = (expected.to_owned(), unauthorized);
            assert_eq!(problem(state, now, heard, synced), expected);
        }
        denied.record(Ok(()), at(50));
        assert_eq!(problem(&denied, 51, Some(51), true), (String::new(), false));
    }

    #[test]
    fn every_answer_but_http_401_counts() {
        for (answer, answered, ready) in [
            (Ok(()), true, true),
            (status(403), true, true),
            (status(404), true, true),
            (status(429), true, true),
            (status(500), true, false),
            (status(503), true, false),
            (status(401), false, true),
            (Err(CallError::Transport("reset".into())), false, true),
            (
                Err(CallError::Timeout(std::time::Duration::from_secs(5))),
                false,
                true,
            ),
        ] {
            let mut state = answered_at_zero();
            let shown = format!("{answer:?}");
            state.record(answer, at(30));
            assert_eq!(state.answered, at(if answered { 30 } else { 0 }), "{shown}");
            assert_eq!(state.unready.is_none(), ready, "{shown}");
            let quiet = state.unanswered.is_none() && !state.unauthorized;
            assert_eq!(quiet, answered, "{shown}");
        }
    }

    #[test]
    fn a_member_is_not_ready_since_its_first_report_of_it() {
        let mut state = answered_at_zero();
        state.record(status(500), at(10));
        state.record(status(503), at(20));
        let not_ready = Health::NotReady { since: at(10) };
        assert_eq!(health(&state, 21, Some(21), true), not_ready);
        state.record(Ok(()), at(30));
        assert_eq!(health(&state, 31, Some(31), true), Health::Ready);
    }

    #[test]
    fn a_member_is_probed_at_least_three_times_before_it_counts_as_lost() {
        for (lost_after, probe_period) in [(45, 10), (30, 10), (6, 2), (600, 10)] {
            let lost_after = SignedDuration::from_secs(lost_after);
            let timeouts = Timeouts::new(lost_after);
            assert_eq!(
                timeouts.probe_period,
                SignedDuration::from_secs(probe_period)
            );
            assert_eq!(timeouts.lost_after, lost_after);
        }
    }
}
