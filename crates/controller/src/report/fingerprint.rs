//! The part of a status whose change is worth a write: not measured values, nor times, nor sentences, except the cause
//! of a condition that is not healthy: its message without numbers.
//!
//! The status of an object that publishes its forecasts is read by the metric adapter and the KEDA scaler. There the
//! first three significant digits of a forecast count too, and the status is written at least once per [`HEARTBEAT`].

use foretide_crds::{ClusterStatus, EffectiveHorizontalPodAutoscalerStatus, HistoryStatus};
use foretide_domain::proposal::{Reason, Source};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::conditions;
use foretide_api::{
    autoscaler::{FleetStatus, Status},
    member_reason::MemberReason,
    published::HEARTBEAT,
};

/// The reasons of a count that its value asks for, that is within the tolerance of it, or that pods without metrics
/// hold: noise moves a value from one to another.
const PLAIN: [Reason; 4] = [
    Reason::ValidMetricFound,
    Reason::ForecastReady,
    Reason::WithinTolerance,
    Reason::PodsWithoutMetrics,
];

/// The parts of a status that are compared with the status that was written last.
#[derive(Debug, Clone)]
pub struct StatusFingerprint {
    gist: Gist,
    /// The causes of the conditions that are not healthy.
    causes: Vec<String>,
    /// True if others read the forecasts of the object.
    publishes: bool,
    /// The time of the decision.
    decided: Option<Timestamp>,
}

/// The part of a status whose change is worth a write.
#[derive(Debug, Clone, PartialEq)]
struct Gist {
    common: EffectiveHorizontalPodAutoscalerStatus,
    fleet: FleetStatus,
    /// For each member, true if its capacity is known.
    has_capacity: Vec<bool>,
}

// === impl StatusFingerprint ===

impl StatusFingerprint {
    /// The fingerprint of a status; `publishes` says whether others read its forecasts.
    pub fn of(status: &Status, publishes: bool) -> Self {
        let decision = status.common.decision.as_ref();
        Self {
            gist: Gist::of(status, publishes),
            causes: causes(status),
            publishes,
            decided: decision.and_then(|decision| Some(decision.time.as_ref()?.0)),
        }
    }

    /// True if a status with this fingerprint is worth a write after one with the fingerprint `last`.
    pub fn is_news_after(&self, last: &Self) -> bool {
        // In both directions: the clock may have been set back.
        let is_due = self
            .decided
            .zip(last.decided)
            .is_some_and(|(decided, last)| decided.duration_since(last).abs() >= HEARTBEAT);
        self.publishes && is_due || self.gist != last.gist
    }

    /// Returns true if a condition that is not healthy has another cause than in `last`.
    pub fn has_other_causes_than(&self, last: &Self) -> bool {
        self.causes != last.causes
    }

    /// Returns true if the status says that zero replicas are the work of an autoscaler.
    pub fn has_own_zero(&self) -> bool {
        self.gist.common.has_own_zero()
    }

    /// True if two statuses differ in nothing whose change is worth a write.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.gist == other.gist
    }

    /// True if nothing of a decision is in the status.
    pub fn is_empty(&self) -> bool {
        self.gist.common.expect_replicas.is_none()
    }

    /// True if others read the forecasts of the object.
    pub const fn publishes(&self) -> bool {
        self.publishes
    }

    /// The ledger of the status, if it has one.
    pub fn ledger(&self) -> Option<&str> {
        self.gist.fleet.ledger.as_deref()
    }

    /// The same status with another ledger.
    pub fn set_ledger(&mut self, ledger: &str) {
        self.gist.fleet.ledger = Some(ledger.to_owned());
    }
}

// === impl Gist ===

impl Gist {
    fn of(status: &Status, publishes: bool) -> Self {
        let mut common = status.common.clone();
        // The rest of the history changes with every sync.
        let zero = common.history.and_then(|history| history.scaled_to_zero);
        common.history = zero.map(|zero| HistoryStatus {
            scaled_to_zero: Some(zero),
            ..HistoryStatus::default()
        });
        // A change comes with another count.
        common.changes = None;
        common.last_scale_time = None;
        if let Some(decision) = &mut common.decision {
            decision.time = None;
            decision.leader_epoch = None;
            decision.message = None;
            // The largest of the proposals, which are compared.
            decision.sources = None;
            for proposal in decision.proposals.iter_mut().flatten() {
                let is_read = publishes && proposal.source == Source::Forecast;
                let peak = proposal.forecast.take().and_then(|forecast| forecast.peak);
                proposal.value = peak.or(proposal.value.take());
                for number in [&mut proposal.value, &mut proposal.target] {
                    *number = number.take().filter(|_| is_read).map(three_digits);
                }
                // Whether a value is within the tolerance changes as often as the value.
                let reason = proposal.reason.take();
                proposal.reason =
                    reason.filter(|reason| PLAIN.iter().all(|it| it.as_str() != reason));
            }
        }
        for condition in common.conditions.iter_mut().flatten() {
            condition.message = String::new();
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        let clusters = status.fleet.clusters.iter().flatten();
        let has_capacity = clusters.clone().map(|cluster| cluster.capacity.is_some());
        Self {
            common,
            has_capacity: has_capacity.collect(),
            fleet: FleetStatus {
                clusters: Some(clusters.cloned().map(steady).collect()),
                ..status.fleet.clone()
            },
        }
    }
}

/// The messages of the conditions that are not healthy, without what changes while the cause is the same.
fn causes(status: &Status) -> Vec<String> {
    conditions::unhealthy(status)
        .map(|known| cause(&known.message))
        .collect()
}

/// A message without its numbers, each with the unit or noun after it; but an HTTP status is a cause.
fn cause(message: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut is_noun = false;
    for word in message.split_whitespace() {
        let is_number = word.contains(|sign: char| sign.is_ascii_digit());
        let is_status = words.last().is_some_and(|last| last.ends_with("status"));
        if is_status || !(is_number || is_noun) {
            words.push(word);
        }
        is_noun = is_number && !is_status;
    }
    words.join(" ")
}

/// A number to three significant digits.
fn three_digits(number: String) -> String {
    match number.parse::<f64>() {
        Ok(number) => format!("{number:.2e}"),
        Err(_) => number,
    }
}

/// A member's row without what changes with every measurement.
fn steady(cluster: ClusterStatus) -> ClusterStatus {
    ClusterStatus {
        reason: cluster.reason.as_deref().map(MemberReason::gist),
        capacity: None,
        utilization: None,
        observed: None,
        last_transfer: cluster.last_transfer.map(seconds),
        ..cluster
    }
}

/// A time as it is stored.
fn seconds(Time(at): Time) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

#[cfg(test)]
mod tests {
    use foretide_crds::FederatedHPAStatus;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reason_that_noise_changes_is_no_news() {
        let with = |reason: Reason| {
            let proposal = json!({
                "source": "observed", "name": "resource.cpu", "replicas": 50, "reason": reason.as_str(),
            });
            let status = json!({ "expectReplicas": 50, "decision": { "proposals": [proposal] } });
            let status = Status {
                common: serde_json::from_value(status).unwrap(),
                fleet: FleetStatus::default(),
            };
            StatusFingerprint::of(&status, false)
        };
        let plain = with(Reason::ValidMetricFound);
        for reason in [Reason::WithinTolerance, Reason::PodsWithoutMetrics] {
            assert!(!with(reason).is_news_after(&plain), "{reason:?}");
        }
        assert!(with(Reason::MissingRequest).is_news_after(&plain));
    }

    #[test]
    fn a_stored_status_has_the_fingerprint_of_the_one_that_was_written() {
        let at = Time(Timestamp::from_millisecond(1_767_225_600_789).unwrap());
        let mut clusters: Vec<ClusterStatus> =
            serde_json::from_value(json!([{"name": "m1", "role": "Receiver"}])).unwrap();
        clusters[0].last_transfer = Some(at);
        let written = Status {
            common: EffectiveHorizontalPodAutoscalerStatus::default(),
            fleet: FleetStatus {
                clusters: Some(clusters),
                ..FleetStatus::default()
            },
        };
        let stored = serde_json::to_value(FederatedHPAStatus {
            clusters: written.fleet.clusters.clone(),
            ..FederatedHPAStatus::default()
        });
        let stored: FederatedHPAStatus = serde_json::from_value(stored.unwrap()).unwrap();
        assert_ne!(stored.clusters, written.fleet.clusters);
        let stored = Status {
            fleet: FleetStatus {
                clusters: stored.clusters,
                ..FleetStatus::default()
            },
            ..written.clone()
        };
        let [stored, written] = [stored, written].map(|it| StatusFingerprint::of(&it, false));
        assert!(stored.is_same_as(&written));
    }
}
