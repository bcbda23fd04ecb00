//! The connection to one member: its stores, and whether it answers.
//!
//! A member is asked every few seconds whether it is ready, because a quiet cluster says nothing on its watches for
//! most of a minute and a black hole says nothing at all. What it answers and when its watches last heard something
//! give its [`Health`]. It refuses to act on it.

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

/// How long a member may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Time between two questions whether it is ready.
    pub question: SignedDuration,
    /// Without an answer for longer than this it is lost.
    pub answer: SignedDuration,
    /// With a watch that heard nothing for longer than this it is lost; a quiet one is renewed every 50 s.
    pub watch: SignedDuration,
}

/// One connection to a member; its tasks end with it.
pub(super) struct MemberConnection {
    pub(super) access: Access,
    pub(super) cluster: Arc<KubeMember>,
    vigil: Arc<HealthProbe>,
    patience: Timeouts,
    clock: Clock,
    _tasks: JoinSet<()>,
}

/// What is said of a member that answers with HTTP 401.
pub(super) const REFUSED: &str =
    "it does not accept our credentials (HTTP 401); renew them in its Secret";

/// What the watches have brought; wall-clock times.
struct Watches {
    /// When the quietest of them last heard something.
    heard: Option<Timestamp>,
    /// Whether every list was complete once.
    synced: bool,
    /// What keeps one of them from working.
    failing: Option<String>,
}

/// What the questions have brought.
#[derive(Debug)]
struct HealthProbe(Mutex<Answers>);

/// Wall-clock times.
#[derive(Debug, Clone, PartialEq)]
struct Answers {
    /// When it last answered, or when it was first asked.
    answered: Timestamp,
    /// Since when it says that it is not ready, and what it says.
    unready: Option<(Timestamp, String)>,
    /// Why there was no answer the last time.
    unanswered: Option<String>,
    /// Whether that was because our credentials are not accepted.
    refused: bool,
}

/// How a member is doing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Condition {
    /// Whether it answers; lost since the moment at which it counts as lost, which may be yet to come.
    pub(super) health: Health,
    /// What is wrong, for people; there is always something to say of one that is not ready.
    pub(super) problem: Option<String>,
    /// Whether the last answer was that our credentials are not accepted.
    pub(super) refused: bool,
}

// === impl Timeouts ===

impl Timeouts {
    /// A member counts as lost when it did not answer for `lost_after`; it is asked three times meanwhile, and at
    /// least every 10 s.
    #[must_use]
    pub fn of(lost_after: SignedDuration) -> Self {
        let often = SignedDuration::from_secs(10);
        let third = lost_after.checked_div(3).unwrap_or(often);
        Self {
            question: third.min(often),
            answer: lost_after,
            watch: SignedDuration::from_secs(90).max(lost_after),
        }
    }
}

// === impl MemberConnection ===

impl MemberConnection {
    /// Starts to watch and to ask.
    pub(super) fn open(
        name: &str,
        access: Access,
        cluster: Arc<KubeMember>,
        (patience, clock): (Timeouts, &Clock),
    ) -> Self {
        let vigil = Arc::new(HealthProbe::starting());
        let mut tasks = JoinSet::new();
        let (watched, asked) = (cluster.clone(), cluster.clone());
        let span = tracing::info_span!("member", name);
        tasks.spawn(async move { watched.run().await }.instrument(span));
        tasks.spawn(vigil.clone().keep(asked, patience.question));
        Self {
            access,
            cluster,
            vigil,
            patience,
            clock: clock.clone(),
            _tasks: tasks,
        }
    }

    /// Whether every store that a sync needs has seen a complete list.
    pub(super) fn is_synced(&self) -> bool {
        self.cluster.is_synced()
    }

    /// Whether the member answers, as of now, and what is wrong if it does not.
    pub(super) fn condition(&self) -> Condition {
        let watches = Watches {
            heard: self.cluster.last_contact(),
            synced: self.is_synced(),
            failing: self.cluster.failing(),
        };
        let age = |at| self.clock.wall_age(at);
        let answers = self.vigil.answers().clone();
        let condition = answers.condition(watches, &self.patience, age);
        Condition {
            health: on(&self.clock, condition.health),
            ..condition
        }
    }

    /// Whether the member is ready, as of now.
    pub(super) fn is_ready(&self) -> bool {
        self.condition().health == Health::Ready
    }

    /// How long ago the member last answered, or its quietest watch last heard something.
    pub(super) fn silence(&self) -> SignedDuration {
        let answered = self.vigil.answers().answered;
        let oldest = self
            .cluster
            .last_contact()
            .map_or(answered, |at| at.min(answered));
        self.clock.wall_age(oldest)
    }
}

fn on(clock: &Clock, health: Health) -> Health {
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
    fn starting() -> Self {
        Self(Mutex::new(Answers {
            answered: Clock::system().now(),
            unready: None,
            unanswered: None,
            refused: false,
        }))
    }

    /// Asks for ever.
    async fn keep(self: Arc<Self>, cluster: Arc<KubeMember>, every: SignedDuration) {
        loop {
            let answer = cluster.check_ready().await;
            self.answers().note(answer, Clock::system().now());
            Clock::system().sleep(every).await;
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Answers ===

impl Answers {
    fn note(&mut self, answer: Result<(), CallError>, now: Timestamp) {
        self.refused = matches!(answer, Err(CallError::Status { code: 401, .. }));
        match answer {
            Err(CallError::Status { code: 401, .. }) => self.unanswered = None,
            Err(CallError::Status {
                code: code @ 500..,
                message,
            }) => {
                self.answered(now);
                let since = self.unready.take().map_or(now, |(since, _)| since);
                let said: String = message.chars().take(200).collect();
                self.unready = Some((since, format!("it is not ready (HTTP {code}): {said}")));
            }
            // Who may not ask, or asks a proxy that does not know the question, was answered all the same.
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

    /// All of it on the wall clock; `age` says how long ago something was.
    fn condition(
        self,
        watches: Watches,
        patience: &Timeouts,
        age: impl Fn(Timestamp) -> SignedDuration,
    ) -> Condition {
        let answered = self.answered;
        let said = |words: String, why: Option<String>| Some(with(words, why));
        let lost = |last, limit, problem| {
            let since = later(last, limit);
            (Health::Unknown { since }, problem)
        };
        let (health, problem) = match watches.heard {
            _ if age(answered) > patience.answer => {
                let words = format!("it does not answer since {answered:.0}");
                let why = self.unanswered.or(watches.failing);
                lost(answered, patience.answer, said(words, why))
            }
            Some(heard) if age(heard) > patience.watch => {
                let words = format!("its watches have heard nothing since {heard:.0}");
                let why = watches.failing.or(self.unanswered);
                lost(heard, patience.watch, said(words, why))
            }
            Some(_) if watches.synced => match self.unready {
                Some((since, said)) => (Health::NotReady { since }, Some(said)),
                None => (Health::Ready, self.unanswered.or(watches.failing)),
            },
            _ => {
                let words = "it has not listed everything yet".to_owned();
                let why = self.unanswered.or(watches.failing);
                lost(answered, patience.answer, said(words, why))
            }
        };
        Condition {
            health,
            problem: if self.refused {
                Some(REFUSED.to_owned())
            } else {
                problem
            },
            refused: self.refused,
        }
    }
}

/// What happened, and why if anybody knows.
fn with(words: String, why: Option<String>) -> String {
    match why {
        Some(why) => format!("{words}: {why}"),
        None => words,
    }
}

/// When something that was last heard of at `last` counts as lost.
fn later(last: Timestamp, limit: SignedDuration) -> Timestamp {
    last.saturating_add(limit).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000 + second).unwrap()
    }

    fn answers() -> Answers {
        Answers {
            answered: at(0),
            unready: None,
            unanswered: None,
            refused: false,
        }
    }

    fn refused(code: u16) -> Result<(), CallError> {
        Err(CallError::Status {
            code,
            message: "words".into(),
        })
    }

    /// How it does at a second, with watches that heard something at another.
    fn condition(answers: &Answers, now: i64, heard: Option<i64>, synced: bool) -> Condition {
        let watches = Watches {
            heard: heard.map(at),
            synced,
            failing: None,
        };
        let patience = Timeouts::of(SignedDuration::from_secs(45));
        let age = |then| at(now).duration_since(then);
        answers.clone().condition(watches, &patience, age)
    }

    fn health(answers: &Answers, now: i64, heard: Option<i64>, synced: bool) -> Health {
        condition(answers, now, heard, synced).health
    }

    #[test]
    fn a_member_counts_as_lost_from_when_its_silence_has_lasted_too_long() {
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
            let found = health(&answers(), now, heard, synced);
            assert_eq!(
                found, expected,
                "at {now}, heard at {heard:?}, synced {synced}"
            );
        }
    }

    #[test]
    fn why_a_member_is_not_ready_tells_when_it_last_answered_and_what_is_in_the_way() {
        let said = |answers: &Answers, now, heard, synced| {
            let found = condition(answers, now, heard, synced);
            (found.problem.unwrap_or_default(), found.refused)
        };
        let mut silent = answers();
        silent.note(Err(CallError::Transport("reset".into())), at(30));
        let mut denied = silent.clone();
        denied.note(refused(401), at(40));
        for (answers, now, heard, synced, expected, refused) in [
            (&answers(), 10, Some(10), true, "", false),
            (&silent, 40, Some(40), true, "reset", false),
            (
                &silent,
                46,
                Some(46),
                true,
                "it does not answer since 1970-01-01T00:16:40Z: reset",
                false,
            ),
            (
                &answers(),
                40,
                Some(-51),
                true,
                "its watches have heard nothing since 1970-01-01T00:15:49Z",
                false,
            ),
            (
                &answers(),
                10,
                None,
                false,
                "it has not listed everything yet",
                false,
            ),
            // Also before it counts as lost.
            (&denied, 41, Some(41), true, REFUSED, true),
            (&denied, 100, Some(100), true, REFUSED, true),
        ] {
            let expected = (expected.to_owned(), refused);
            assert_eq!(said(answers, now, heard, synced), expected);
        }
        denied.note(Ok(()), at(50));
        assert_eq!(said(&denied, 51, Some(51), true), (String::new(), false));
    }

    #[test]
    fn every_answer_counts_but_one_that_our_credentials_are_none() {
        for (answer, answered, ready) in [
            (Ok(()), true, true),
            (refused(403), true, true),
            (refused(404), true, true),
            (refused(429), true, true),
            (refused(500), true, false),
            (refused(503), true, false),
            (refused(401), false, true),
            (Err(CallError::Transport("reset".into())), false, true),
            (
                Err(CallError::Timeout(std::time::Duration::from_secs(5))),
                false,
                true,
            ),
        ] {
            let mut answers = answers();
            let shown = format!("{answer:?}");
            answers.note(answer, at(30));
            assert_eq!(
                answers.answered,
                at(if answered { 30 } else { 0 }),
                "{shown}"
            );
            assert_eq!(answers.unready.is_none(), ready, "{shown}");
            let quiet = answers.unanswered.is_none() && !answers.refused;
            assert_eq!(quiet, answered, "{shown}");
        }
    }

    #[test]
    fn a_member_is_not_ready_since_it_said_so_first() {
        let mut answers = answers();
        answers.note(refused(500), at(10));
        answers.note(refused(503), at(20));
        let not_ready = Health::NotReady { since: at(10) };
        assert_eq!(health(&answers, 21, Some(21), true), not_ready);
        answers.note(Ok(()), at(30));
        assert_eq!(health(&answers, 31, Some(31), true), Health::Ready);
    }

    #[test]
    fn a_member_is_asked_at_least_three_times_before_it_counts_as_lost() {
        for (lost_after, question) in [(45, 10), (30, 10), (6, 2), (600, 10)] {
            let lost_after = SignedDuration::from_secs(lost_after);
            let patience = Timeouts::of(lost_after);
            assert_eq!(patience.question, SignedDuration::from_secs(question));
            assert_eq!(patience.answer, lost_after);
        }
    }
}
