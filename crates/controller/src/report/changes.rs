//! The last changes of an object's number of replicas: an event for each that Foretide decided, and a list in the
//! status.
//!
//! A change is seen as a count that differs from the one of the sync before. In Delegated the child makes it some
//! seconds after the decision, so the sentence of that decision is kept until then. The list is written with the count,
//! which changes the status anyway.

use std::collections::VecDeque;

use foretide_crds::{EffectiveHorizontalPodAutoscalerStatus, ReplicaChangeStatus};
use foretide_domain::{
    Replicas,
    autoscale::{Decision, Limit, action::Action},
    words::excerpt,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::apply::Applied;
use foretide_api::autoscaler::Autoscaler;
use foretide_api::ports::EventNote;

/// Maximum number of changes that are kept.
const MAX_CHANGES: usize = 10;
/// The longest sentence of a kept change, in characters.
const MAX_SENTENCE: usize = 300;

/// The last changes of one object, and the state that the next one is compared with.
#[derive(Debug, Default)]
pub struct ReplicaChanges {
    before: Option<Before>,
    /// The changes, oldest first.
    recent: VecDeque<ReplicaChangeStatus>,
}

/// State that the last sync left.
#[derive(Debug)]
struct Before {
    count: Replicas,
    /// The decided count, and the sentence of the decision.
    desired: Replicas,
    sentence: String,
    /// The time at which the child had scaled last.
    child_scaled: Option<Timestamp>,
}

/// Author of a change.
enum Cause {
    /// Foretide, by this decision.
    Decision(String),
    /// Another writer; or the child, in a member of a fleet.
    Other,
}

// === impl ReplicaChanges ===

impl ReplicaChanges {
    /// The changes that a status kept.
    pub fn of_stored(status: Option<&EffectiveHorizontalPodAutoscalerStatus>) -> Self {
        let Some(status) = status else {
            return Self::default();
        };
        let counts = status.current_replicas.zip(status.expect_replicas);
        let sentence = status.decision.as_ref().and_then(|it| it.message.clone());
        Self {
            before: counts.map(|(count, desired)| Before {
                count: Replicas::from_i32(count),
                desired: Replicas::from_i32(desired),
                sentence: sentence.unwrap_or_default(),
                // A status has one time for the child's changes and ours.
                child_scaled: status.last_scale_time.as_ref().map(|time| time.0),
            }),
            recent: status.changes.iter().flatten().cloned().collect(),
        }
    }

    /// The changes as a status keeps them.
    pub fn status(&self) -> Option<Vec<ReplicaChangeStatus>> {
        (!self.recent.is_empty()).then(|| self.recent.iter().cloned().collect())
    }

    /// Compares the count with that of the last sync, unless it `is_recounted` over other workloads, and records what
    /// this one wrote; the events of both.
    pub fn follow(
        &mut self,
        applied: &Applied,
        is_recounted: bool,
        now: Timestamp,
    ) -> Vec<EventNote> {
        let decision = &applied.decided.decision;
        let sentence = match decision.action {
            Action::Pin { to } => format!("{to} replicas: specificReplicas in Preview"),
            _ => decision.message(),
        };
        let child = applied.decided.acting_hpa();
        let child_scaled = child.and_then(|child| child.last_scale);
        let is_fleet = matches!(applied.decided.part.autoscaler, Autoscaler::Federated(_));
        let mut events = Vec::new();
        let (mut count, before) = (decision.current, self.before.take());
        let is_compared = applied.decided.is_carried_out && !is_recounted;
        if let Some(before) = before.filter(|it| it.count != count && is_compared) {
            // In a fleet a count also changes because a member is seen or lost.
            match before.cause(decision, child_scaled, is_fleet) {
                Cause::Decision(sentence) => {
                    events.push(self.record(before.count, count, &sentence, now));
                }
                Cause::Other if is_fleet => {}
                Cause::Other => {
                    let sentence = "another writer changed the replicas";
                    drop(self.record(before.count, count, sentence, now));
                }
            }
        }
        if let Some(to) = applied.scaled() {
            events.push(self.record(count, to, &sentence, now));
            count = to;
        }
        self.before = Some(Before {
            count,
            desired: decision.desired,
            sentence,
            child_scaled,
        });
        events
    }

    /// Keeps a change, and makes its event.
    fn record(&mut self, from: Replicas, to: Replicas, sentence: &str, at: Timestamp) -> EventNote {
        self.recent.push_back(ReplicaChangeStatus {
            time: Time(at),
            from: from.as_i32(),
            to: to.as_i32(),
            message: excerpt(sentence, MAX_SENTENCE),
        });
        while self.recent.len() > MAX_CHANGES {
            self.recent.pop_front();
        }
        EventNote {
            warning: false,
            reason: "Scaled",
            action: "Scale",
            note: format!("scaled from {from} to {to}: {sentence}"),
        }
    }
}

// === impl Before ===

impl Before {
    /// The cause of the count that `decision` found.
    fn cause(&self, decision: &Decision, child_scaled: Option<Timestamp>, is_fleet: bool) -> Cause {
        let count = decision.current;
        if self.is_led_by(self.desired, count) {
            return Cause::Decision(self.sentence.clone());
        }
        if is_fleet || child_scaled > self.child_scaled {
            // A target that somebody scaled to zero is left there: the decision follows this change.
            let is_decided =
                self.is_led_by(decision.desired, count) && decision.limit != Some(Limit::Paused);
            return match (is_decided, is_fleet) {
                (true, _) => Cause::Decision(decision.message()),
                (false, true) => Cause::Other,
                (false, false) => Cause::Decision(format!(
                    "{count} replicas: the HorizontalPodAutoscaler scaled by its own reading of the metrics"
                )),
            };
        }
        Cause::Other
    }

    /// True if the way from the count before to `count` leads to `desired`.
    fn is_led_by(&self, desired: Replicas, count: Replicas) -> bool {
        (self.count < count && count <= desired) || (desired <= count && count < self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_changes_are_kept_with_the_beginnings_of_their_sentences() {
        let mut changes = ReplicaChanges::default();
        for n in 0..14_u32 {
            let sentence = "é".repeat(1_000);
            drop(changes.record(
                Replicas::new(n),
                Replicas::new(n + 1),
                &sentence,
                Timestamp::UNIX_EPOCH,
            ));
        }
        let kept = changes.status().unwrap();
        let counts: Vec<_> = kept.iter().map(|change| (change.from, change.to)).collect();
        assert_eq!(counts, (4..14).map(|n| (n, n + 1)).collect::<Vec<_>>());
        assert!(
            kept.iter()
                .all(|change| change.message == format!("{}...", "é".repeat(300)))
        );
    }
}
