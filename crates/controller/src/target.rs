//! The state of one workload in one cluster that is kept between syncs: its history, and its child as written last.
//!
//! A history that was lost comes back from status as far as a status was written; what is missing holds scale-down for
//! a while.

use std::{collections::BTreeMap, sync::Arc};

use foretide_crds::{
    DecisionStatus, EffectiveHorizontalPodAutoscalerStatus, HistoryStatus, Lane, ProposalStatus,
    RecommendationStatus, ScaleEventStatus,
};
use foretide_domain::{
    Replicas,
    autoscale::history::{History, RawFloor},
    division::Division,
    hpa::{Behavior, Log, Recommendation, ScaleEvent, Settings},
    proposal::{Reason, Source, Unit},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{child_hpa::as_child, foreign_writes::ForeignWrites};
use foretide_api::ports::HpaView;

/// Time for which a count may come from a copy that is older than what an earlier process has stored: longer than any
/// copy that is acted on is old.
const COPIES_LAST: SignedDuration = SignedDuration::from_secs(90);

/// The state of one workload in one cluster.
#[derive(Debug, Default)]
pub struct TargetState {
    /// Identity of the scale target that `history` is about.
    pub target_uid: Option<String>,
    /// Stabilization and rate limits.
    pub history: History,
    /// The part of that history that a status held before we observed the target.
    pub stored: StoredHistory,
    /// Time since when a zero of an earlier process is not seen: the copy of the scale may be older than the status.
    pub unseen_zero: Option<Timestamp>,
    /// The time at which the last change of the scale was applied.
    pub last_scale: Option<Timestamp>,
    /// The `minReplicas` that was written to the child last, if there is one.
    pub child_min: Option<Replicas>,
    /// The child as it was written last.
    pub child: Option<Arc<HpaView>>,
    /// The foreign writes of the replicas that we write.
    pub foreign_writes: ForeignWrites,
}

/// History in the status of an object that is new to us.
#[derive(Debug, Clone, Default)]
pub enum StoredHistory {
    /// Nothing was ever decided: there is nothing to lose.
    #[default]
    None,
    /// Something was decided, and its history was not kept, apart from who scaled to zero.
    Lost { scaled_to_zero: bool },
    /// The part of the history that was kept.
    Kept {
        history: HistoryStatus,
        /// The source of the last winner.
        winner: Option<Source>,
        /// The last proposal of each forecast.
        forecast_held: BTreeMap<String, Replicas>,
        /// For each metric that is forecast, whether its total divides among pods.
        division: BTreeMap<String, Division>,
    },
}

// === impl StoredHistory ===

impl StoredHistory {
    /// The history that a status kept.
    pub fn of(status: Option<&EffectiveHorizontalPodAutoscalerStatus>) -> Self {
        let decided = status.and_then(|status| Some((status.decision.as_ref()?, &status.history)));
        match decided {
            None => Self::None,
            Some((_, None)) => Self::Lost {
                scaled_to_zero: false,
            },
            Some((decision, Some(history))) => Self::Kept {
                history: history.clone(),
                winner: decision.winner,
                forecast_held: forecast_held(decision),
                division: division(decision),
            },
        }
    }
}

// === impl TargetState ===

impl TargetState {
    /// Shifts every time of our own clock by a step of the wall clock.
    pub fn shift(&mut self, step: SignedDuration) {
        self.history = std::mem::take(&mut self.history).shifted(step);
        if let StoredHistory::Kept { history, .. } = &mut self.stored {
            shift_kept(history, step);
        }
        self.foreign_writes.shift(step);
        for time in [&mut self.last_scale, &mut self.unseen_zero] {
            *time = time.map(|at| shifted(at, step));
        }
    }

    /// Remembers how the child was left.
    pub fn child_left(&mut self, child: Option<&Arc<HpaView>>) {
        self.child_min = child.map(|hpa| as_child(hpa).min);
        self.child = child.cloned();
    }

    /// Remembers whose zero the count is, or will be once the action of a decision is carried out.
    pub fn saw_count(&mut self, current: Replicas, scales_to_zero: bool, now: Timestamp) {
        if current == Replicas::ZERO {
            self.unseen_zero = None;
            return;
        }
        // Before it is written: whoever ends in between, or gets no answer, leaves a zero that is ours.
        self.history.log.scaled_to_zero = scales_to_zero
            || (self.unseen_zero)
                .is_some_and(|since| now.duration_since(since).abs() < COPIES_LAST);
    }

    /// Remembers a change of the scale that we applied.
    pub fn scaled(
        &mut self,
        behavior: Option<&Behavior>,
        from: Replicas,
        to: Replicas,
        at: Timestamp,
    ) {
        self.history = std::mem::take(&mut self.history).applied(behavior, from, to, at);
        self.last_scale = Some(at);
        // It was applied to the count that was seen.
        self.unseen_zero = None;
    }

    /// Assigns the history to the target with this UID.
    ///
    /// A target that is seen for the first time takes what status kept, with a hold for what it did not keep; a
    /// recreated target starts with none.
    pub fn restore(
        &mut self,
        target_uid: &str,
        behavior: Option<&Behavior>,
        settings: &Settings,
        now: Timestamp,
    ) {
        match self.target_uid.replace(target_uid.to_owned()) {
            Some(before) if before == target_uid => {}
            // Another object of the same name: the history is that of its predecessor.
            Some(_) => {
                self.history = History::default();
                self.foreign_writes = ForeignWrites::default();
            }
            None => {
                let lost = History::lost(now, behavior, settings);
                match std::mem::take(&mut self.stored) {
                    StoredHistory::None => {}
                    StoredHistory::Lost { scaled_to_zero } => {
                        self.history = lost;
                        self.history.log.scaled_to_zero = scaled_to_zero;
                    }
                    StoredHistory::Kept {
                        history,
                        winner,
                        forecast_held,
                        division,
                    } => {
                        self.history = History {
                            winner,
                            forecast_held,
                            division,
                            ..restored(&history, lost, now)
                        }
                    }
                }
                self.unseen_zero = self.history.log.scaled_to_zero.then_some(now);
            }
        }
    }
}

fn shifted(at: Timestamp, step: SignedDuration) -> Timestamp {
    at.saturating_add(step).unwrap_or(at)
}

fn shift_kept(kept: &mut HistoryStatus, step: SignedDuration) {
    let recommendations = kept.recommendations.iter_mut().flatten();
    let events = kept.events.iter_mut().flatten();
    let times = recommendations.map(|entry| &mut entry.time);
    for time in times.chain(events.map(|event| &mut event.time)) {
        time.0 = shifted(time.0, step);
    }
}

/// The last proposal of each forecast, as a status shows it.
fn forecast_held(decision: &DecisionStatus) -> BTreeMap<String, Replicas> {
    let mut held = BTreeMap::new();
    for forecast in forecasts(decision) {
        if let Some(replicas) = forecast.replicas {
            held.insert(forecast.name.clone(), Replicas::from_i32(replicas));
        }
    }
    held
}

/// The proposals of a status that are from forecasts.
fn forecasts(decision: &DecisionStatus) -> impl Iterator<Item = &ProposalStatus> {
    let proposals = decision.proposals.iter().flatten();
    proposals.filter(|proposal| proposal.source == Source::Forecast)
}

/// For each metric, whether its total divides among pods, as the reasons of its forecasts show it.
fn division(decision: &DecisionStatus) -> BTreeMap<String, Division> {
    let mut known = BTreeMap::new();
    for forecast in forecasts(decision) {
        let grows = forecast.reason.as_deref() == Some(Reason::NotDivided.as_str());
        // A forecast of cpu tells no more than what is assumed of it.
        let is_proven =
            Unit::of_metric(&forecast.name) != Unit::Cores && forecast.replicas.is_some();
        if grows || is_proven {
            known.insert(forecast.name.clone(), Division::stored(grows));
        }
    }
    known
}

/// The history in the shape that status keeps it in.
pub fn kept(history: &History) -> HistoryStatus {
    let observed = history
        .log
        .recommendations()
        .iter()
        .map(|entry| RecommendationStatus {
            time: MicroTime(entry.at),
            lane: Lane::Observed,
            replicas: entry.replicas.as_i32(),
            mirrored: Some(entry.mirrored),
        });
    let floors = history.floors.iter().map(|entry| RecommendationStatus {
        time: MicroTime(entry.at),
        lane: Lane::Floor,
        replicas: entry.raw.as_i32(),
        mirrored: None,
    });
    let ups = history.log.scale_up.iter().map(|event| (event, 1));
    let downs = history.log.scale_down.iter().map(|event| (event, -1));
    let events = ups.chain(downs).map(|(event, sign)| ScaleEventStatus {
        time: MicroTime(event.at),
        change: sign * event.change.as_i32(),
    });
    HistoryStatus {
        recommendations: Some(observed.chain(floors).collect()),
        events: Some(events.collect()),
        scaled_to_zero: history.log.scaled_to_zero.then_some(true),
    }
}

/// A lost history, as far as status kept it; entries in the future are ignored.
fn restored(status: &HistoryStatus, lost: History, now: Timestamp) -> History {
    let (mut recommendations, mut floors) = (Vec::new(), Vec::new());
    // If the clock was set back, an entry in the future would count for too long.
    let entries = status.recommendations.iter().flatten();
    for entry in entries.filter(|entry| entry.time.0 <= now) {
        let (at, replicas) = (entry.time.0, Replicas::from_i32(entry.replicas));
        match entry.lane {
            Lane::Observed => recommendations.push(Recommendation {
                at,
                replicas,
                mirrored: entry.mirrored.unwrap_or(false),
            }),
            Lane::Floor => floors.push(RawFloor { at, raw: replicas }),
        }
    }
    let (mut scale_up, mut scale_down) = (Vec::new(), Vec::new());
    let events = status.events.iter().flatten();
    for event in events.filter(|event| event.time.0 <= now) {
        let same = if event.change > 0 {
            &mut scale_up
        } else {
            &mut scale_down
        };
        same.push(ScaleEvent {
            at: event.time.0,
            change: Replicas::new(event.change.unsigned_abs()),
            // Not kept: the next change of the scale marks the outdated ones again.
            outdated: false,
        });
    }
    History {
        log: Log {
            recommendations: (!recommendations.is_empty()).then_some(recommendations),
            scale_up,
            scale_down,
            scaled_to_zero: status.scaled_to_zero.unwrap_or_default(),
        },
        floors,
        ..lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_copy_of_the_scale_ends_no_sleep_that_the_status_tells_of_and_a_later_count_does() {
        let start = Timestamp::UNIX_EPOCH;
        for (seconds, is_asleep) in [(15, true), (89, true), (91, false)] {
            let mut target = TargetState {
                stored: StoredHistory::Lost {
                    scaled_to_zero: true,
                },
                ..TargetState::default()
            };
            target.restore("u", None, &Settings::default(), start);
            let now = start + SignedDuration::from_secs(seconds);
            target.saw_count(Replicas::new(1), false, now);
            assert_eq!(target.history.log.scaled_to_zero, is_asleep, "{seconds}");
            // The zero was seen: a count after it is another writer's.
            target.saw_count(Replicas::ZERO, false, now);
            target.saw_count(Replicas::new(1), false, now);
            assert!(!target.history.log.scaled_to_zero, "{seconds}");
        }
    }

    #[test]
    fn a_count_that_is_to_become_zero_is_ours_before_it_is_written() {
        let mut target = TargetState::default();
        target.saw_count(Replicas::new(1), true, Timestamp::UNIX_EPOCH);
        assert!(target.history.log.scaled_to_zero);
    }
}
