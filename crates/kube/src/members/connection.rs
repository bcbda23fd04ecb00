//! The connection to one member cluster: its stores, and its health.
//!
//! A probe asks the member for `/readyz` every few seconds, because a quiet cluster sends nothing on its watches for
//! most of a minute, and an unreachable one sends nothing at all. The results of the probe and the age of the watches
//! give the [`Health`] of the member. What the health of a member means for a fleet is decided in `foretide-federate`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use foretide_federate::Health;
use futures::future::join;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::{
    awake::{self, AwakeTime},
    kubeconfig::Access,
};
use crate::{
    api_server::CallError,
    cluster::{KubeMember, MAX_STALENESS},
};
use foretide_api::ports::Workloads as _;
use foretide_base::clock::{Clock, Contact};

/// Limits of a member's silence, beyond which it counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Time between two probes.
    probe_period: SignedDuration,
    /// Longest time without a successful probe.
    pub(crate) lost_after: SignedDuration,
    /// Longest time in which a watch delivers nothing; a quiet one delivers its end every 25 s.
    watch_silence: SignedDuration,
}

/// One connection to a member; its tasks end when it is dropped.
#[derive(Debug)]
pub struct MemberConnection {
    pub access: Access,
    pub cluster: Arc<KubeMember>,
    probe: Arc<HealthProbe>,
    timeouts: Timeouts,
    tasks: JoinSet<()>,
}

/// Delay before a part of a connection that exited is started again; doubles with each further exit.
const FIRST_RESTART_DELAY: Duration = Duration::from_secs(1);
/// Longest delay before a restart. A part that ran for longer than this starts again after the first delay.
const LAST_RESTART_DELAY: Duration = Duration::from_mins(1);

/// The problem of a member that answers with HTTP 401.
pub const UNAUTHORIZED: &str =
    "credentials rejected (HTTP 401); renew them in the Secret of the member";

/// The state of the watches.
struct WatchState {
    /// Time at which the quietest watch last received something.
    heard: Option<Contact>,
    /// True if every first list is complete.
    synced: bool,
    /// Failure of a watch.
    failing: Option<String>,
}

/// Asks a member for `/readyz` periodically.
#[derive(Debug)]
struct HealthProbe {
    state: Mutex<ProbeState>,
    awake: Mutex<AwakeTime>,
    /// The clock that the member's silence is measured by.
    clock: Clock,
}

/// The results of the probe.
#[derive(Debug, Clone, PartialEq)]
struct ProbeState {
    /// The last answer of the member, or the start of the probe.
    answered: Contact,
    /// Time since when it reports that it is not ready, and its message.
    unready: Option<(Contact, String)>,
    /// Reason why the last probe had no answer.
    unanswered: Option<String>,
    /// True if the last answer was HTTP 401.
    unauthorized: bool,
}

/// The health of a member, and the reason for it.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthReport {
    /// The health. The time since which the member is lost may lie in the future.
    pub health: Health,
    /// The problem, for messages; always present for a member that is not ready.
    pub problem: Option<String>,
    /// True if the last answer was HTTP 401.
    pub unauthorized: bool,
}

// === impl Timeouts ===

impl Timeouts {
    /// A member is lost when it did not answer for `lost_after`; until then it is probed at least three times, and at
    /// least every 10 s.
    pub fn new(lost_after: SignedDuration) -> Self {
        let longest = SignedDuration::from_secs(10);
        let third = lost_after.checked_div(3).unwrap_or(longest);
        Self {
            probe_period: third.min(longest),
            lost_after,
            watch_silence: MAX_STALENESS.max(lost_after),
        }
    }
}

// === impl MemberConnection ===

impl MemberConnection {
    /// A connection that asks nothing yet.
    pub fn new(access: Access, cluster: Arc<KubeMember>, timeouts: Timeouts, clock: Clock) -> Self {
        Self {
            access,
            cluster,
            probe: Arc::new(HealthProbe::new(clock)),
            timeouts,
            tasks: JoinSet::new(),
        }
    }

    /// Starts the watches and the probe, each again when it exits, which `restarts` counts.
    pub fn started(mut self, name: &str, restarts: &Arc<AtomicU64>) -> Self {
        let (cluster, clock) = (self.cluster.clone(), self.probe.clock.clone());
        let watches = keep_running("watches", clock.clone(), restarts.clone(), move || {
            let cluster = cluster.clone();
            async move { cluster.run().await }
        });
        let (cluster, probe) = (self.cluster.clone(), self.probe.clone());
        let period = self.timeouts.probe_period;
        let probes = keep_running("health probe", clock, restarts.clone(), move || {
            probe.clone().run(cluster.clone(), period)
        });
        let span = tracing::info_span!("member", name);
        self.tasks.spawn(watches.instrument(span.clone()));
        self.tasks.spawn(probes.instrument(span));
        self
    }

    /// True if every store that a sync needs has seen a complete list.
    pub fn is_synced(&self) -> bool {
        self.cluster.is_synced()
    }

    /// The health of the member now, on the controller's clock.
    pub fn report(&self) -> HealthReport {
        let watches = WatchState {
            heard: self.cluster.last_contact(),
            synced: self.is_synced(),
            failing: self.cluster.failing(),
        };
        let state = self.probe.state.lock().clone();
        let now = self.probe.clock.now();
        state.report(watches, &self.timeouts, now, |it| {
            self.probe.silence_since(it)
        })
    }

    /// The age of the last answer to the probe, or of the last event of the quietest watch if that is older.
    pub fn silence(&self) -> SignedDuration {
        let answered = self.probe.state.lock().answered.age();
        let heard = self.cluster.last_contact();
        heard.map_or(answered, |heard| heard.age().max(answered))
    }
}

/// Runs a part of a connection for as long as this is polled: one that panics or returns is started again.
async fn keep_running<F: Future<Output = ()> + Send + 'static>(
    part: &'static str,
    clock: Clock,
    restarts: Arc<AtomicU64>,
    start: impl Fn() -> F,
) {
    let mut delay = FIRST_RESTART_DELAY;
    loop {
        let started = clock.monotonic();
        // A set, because it ends its task when it is dropped.
        let mut task = JoinSet::new();
        task.spawn(start().in_current_span());
        let exit = task.join_next().await;
        restarts.fetch_add(1, Ordering::Relaxed);
        if clock.monotonic().since(started) > LAST_RESTART_DELAY {
            delay = FIRST_RESTART_DELAY;
        }
        tracing::error!(
            part,
            ?exit,
            ?delay,
            "part of the connection to a member exited unexpectedly; it is started again after the delay"
        );
        tokio::time::sleep(delay).await;
        delay = delay.saturating_mul(2).min(LAST_RESTART_DELAY);
    }
}

// === impl HealthProbe ===

impl HealthProbe {
    fn new(clock: Clock) -> Self {
        let now = clock.contact();
        let awake = AwakeTime::new(now.monotonic());
        let state = ProbeState {
            answered: now,
            unready: None,
            unanswered: None,
            unauthorized: false,
        };
        Self {
            state: Mutex::new(state),
            awake: Mutex::new(awake),
            clock,
        }
    }

    /// Probes until it is dropped.
    async fn run(self: Arc<Self>, cluster: Arc<KubeMember>, period: SignedDuration) {
        join(self.probe(&cluster, period), self.stay_awake()).await;
    }

    async fn probe(&self, cluster: &KubeMember, period: SignedDuration) {
        loop {
            let answer = cluster.check_ready().await;
            self.state.lock().record(answer, self.clock.contact());
            self.clock.sleep(period).await;
        }
    }

    /// Notes again and again that this process is awake, also while the member does not answer.
    async fn stay_awake(&self) {
        loop {
            self.awake.lock().read(self.clock.monotonic());
            tokio::time::sleep(awake::PERIOD).await;
        }
    }

    /// Time for which the member has not been heard while it could have been.
    fn silence_since(&self, contact: &Contact) -> SignedDuration {
        let now = self.clock.monotonic();
        let mut awake = self.awake.lock();
        awake.read(now);
        let silence = awake.between(contact.monotonic(), now);
        SignedDuration::try_from(silence).unwrap_or(SignedDuration::MAX)
    }
}

// === impl ProbeState ===

impl ProbeState {
    fn record(&mut self, answer: Result<(), CallError>, now: Contact) {
        self.unauthorized = matches!(answer, Err(CallError::Status { code: 401, .. }));
        match answer {
            // Not an answer: with rejected credentials nothing can be read.
            Err(CallError::Status { code: 401, .. }) => self.unanswered = None,
            Err(CallError::Status {
                code: code @ 500..,
                message,
                ..
            }) => {
                self.answered(now.clone());
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

    fn answered(&mut self, now: Contact) {
        self.answered = now;
        self.unanswered = None;
    }

    /// The health at a time of the wall clock, with the silence since a contact.
    fn report(
        self,
        watches: WatchState,
        timeouts: &Timeouts,
        now: Timestamp,
        silence: impl Fn(&Contact) -> SignedDuration,
    ) -> HealthReport {
        let left = timeouts.lost_after.saturating_sub(silence(&self.answered));
        let (health, problem) = match watches.heard {
            // First, because a member that does not answer has no working watch either.
            _ if left.is_negative() => {
                let problem = format!("no answer since {:.0}", self.answered.at());
                let cause = self.unanswered.or(watches.failing);
                (unknown(now, left), Some(with_cause(problem, cause)))
            }
            Some(heard) if silence(&heard) > timeouts.watch_silence => {
                let problem = format!("no watch event since {:.0}", heard.at());
                let cause = watches.failing.or(self.unanswered);
                let left = timeouts.watch_silence.saturating_sub(silence(&heard));
                (unknown(now, left), Some(with_cause(problem, cause)))
            }
            Some(_) if watches.synced => match self.unready {
                Some((first, problem)) => {
                    // By the age, like the time since which a member is lost.
                    let since = now.checked_sub(silence(&first)).unwrap_or(now);
                    (Health::NotReady { since }, Some(problem))
                }
                // Ready so far; the problem is shown before the member counts as lost.
                None => (Health::Ready, self.unanswered.or(watches.failing)),
            },
            _ => {
                let problem = "the first list of its objects is not complete".to_owned();
                let cause = self.unanswered.or(watches.failing);
                (unknown(now, left), Some(with_cause(problem, cause)))
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

/// Health of a member that is lost when it has been silent for `left` longer. By the silence and not by the time of the
/// last contact: the wall clock may have stepped since, or the hub paused.
fn unknown(now: Timestamp, left: SignedDuration) -> Health {
    let since = now.saturating_add(left).unwrap_or(now);
    Health::Unknown { since }
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
    use foretide_base::clock::Monotonic;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000 + second).unwrap()
    }

    /// A contact at this second.
    fn contact(second: i64) -> Contact {
        Contact::of(at(second), reading(second))
    }

    fn reading(second: i64) -> Monotonic {
        Monotonic::after_origin(Duration::from_secs(u64::try_from(1_000 + second).unwrap()))
    }

    /// The silence since a contact at this second, in which the process was always awake.
    fn silence(now: i64) -> impl Fn(&Contact) -> SignedDuration {
        move |contact| reading(now).since(contact.monotonic()).try_into().unwrap()
    }

    fn answered_at_zero() -> ProbeState {
        ProbeState {
            answered: contact(0),
            unready: None,
            unanswered: None,
            unauthorized: false,
        }
    }

    fn status(code: u16) -> Result<(), CallError> {
        Err(CallError::status(code, "words"))
    }

    /// The report at second `now`, when the watches last received an event at second `heard`.
    fn report(state: &ProbeState, now: i64, heard: Option<i64>, synced: bool) -> HealthReport {
        report_after_step(state, (now, 0), heard, synced)
    }

    /// The report as of [`report`] by a wall clock that was moved.
    fn report_after_step(
        state: &ProbeState,
        (now, moved): (i64, i64),
        heard: Option<i64>,
        synced: bool,
    ) -> HealthReport {
        let watches = WatchState {
            heard: heard.map(contact),
            synced,
            failing: None,
        };
        let timeouts = Timeouts::new(SignedDuration::from_secs(45));
        let state = state.clone();
        state.report(watches, &timeouts, at(now + moved), silence(now))
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
            (40, Some(-19), true, Health::Ready),
            (40, Some(-21), true, lost(39)),
        ] {
            let found = health(&answered_at_zero(), now, heard, synced);
            assert_eq!(
                found, expected,
                "at {now}, heard at {heard:?}, synced {synced}"
            );
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_neither_makes_a_member_lost_nor_hides_it() {
        for moved in [-3_600, 3_600] {
            let since = at(45 + moved);
            for (second, expected) in [(40, Health::Ready), (50, Health::Unknown { since })] {
                let now = (second, moved);
                let found = report_after_step(&answered_at_zero(), now, Some(second), true);
                assert_eq!(found.health, expected, "moved by {moved} s, at {second} s");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_the_hub_is_no_silence_of_a_member() {
        let probe = HealthProbe::new(Clock::system());
        let answered = probe.state.lock().answered.clone();
        // Nothing of this process runs for an hour.
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!(probe.silence_since(&answered) < SignedDuration::from_secs(10));
        // From now on the process runs, and the member stays silent.
        let awake = probe.stay_awake();
        let silent = tokio::time::timeout(Duration::from_mins(1), awake).await;
        assert!(silent.is_err());
        assert!(probe.silence_since(&answered) > SignedDuration::from_secs(55));
    }

    #[test]
    fn the_problem_of_a_lost_member_names_its_last_answer_and_the_error() {
        let problem = |state: &ProbeState, now, heard, synced| {
            let found = report(state, now, heard, synced);
            (found.problem.unwrap_or_default(), found.unauthorized)
        };
        let mut silent = answered_at_zero();
        silent.record(Err(CallError::Transport("reset".into())), contact(30));
        let mut denied = silent.clone();
        denied.record(status(401), contact(40));
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
        denied.record(Ok(()), contact(50));
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
            (Err(CallError::Timeout(Duration::from_secs(5))), false, true),
        ] {
            let mut state = answered_at_zero();
            let shown = format!("{answer:?}");
            state.record(answer, contact(30));
            let last = contact(if answered { 30 } else { 0 });
            assert_eq!(state.answered, last, "{shown}");
            assert_eq!(state.unready.is_none(), ready, "{shown}");
            let quiet = state.unanswered.is_none() && !state.unauthorized;
            assert_eq!(quiet, answered, "{shown}");
        }
    }

    #[test]
    fn a_member_is_not_ready_since_its_first_report_of_it() {
        let mut state = answered_at_zero();
        state.record(status(500), contact(10));
        state.record(status(503), contact(20));
        let not_ready = Health::NotReady { since: at(10) };
        assert_eq!(health(&state, 21, Some(21), true), not_ready);
        for moved in [-3_600, 3_600] {
            let stepped = report_after_step(&state, (21, moved), Some(21), true);
            let since = at(10 + moved);
            assert_eq!(stepped.health, Health::NotReady { since }, "{moved}");
        }
        state.record(Ok(()), contact(30));
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
