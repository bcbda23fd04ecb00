//! What the controller remembers of each object between two syncs.
//!
//! Everything in here may be lost at any time: histories come back from status as far as a status
//! was written, and what is missing holds scale-down for a while. Nothing here is a source of truth
//! about the cluster.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, HistoryStatus, Lane, RecommendationStatus, ScaleEventStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{
    apply::Effect, child_hpa::as_child, conformance::Conformance,
    report::fingerprint::StatusFingerprint,
};
use crate::{
    api::ownership::OwnerKind,
    api::spec::Invalid,
    domain::{
        Replicas,
        autoscale::history::{History, RawFloor},
        hpa::{Behavior, Log, Recommendation, ScaleEvent, Settings},
        lead_time::LeadTimes,
        workload::Workload,
    },
    ports::HpaView,
    telemetry::ObjectLabels,
};

/// What is remembered of one object.
#[derive(Debug, Clone)]
pub(super) struct ObjectState {
    /// Labels of its metric series, for the day it goes.
    pub(super) labels: ObjectLabels,
    /// The last spec that could be acted on.
    pub(super) workload: Option<Arc<Workload>>,
    /// The object as it was with that spec: what a child is made of.
    pub(super) valid: Option<Arc<EffectiveHorizontalPodAutoscaler>>,
    /// Why the spec as it stands cannot be acted on, if so.
    pub(super) invalid: Option<Invalid>,
    /// Its workload.
    pub(super) track: TargetState,
    /// What was last written to status.
    pub(super) written: Option<StatusFingerprint>,
    /// The reason of the last warning, while what it warned of lasts.
    pub(super) warned: Option<&'static str>,
    /// How long its pods took to start.
    pub(super) lead_times: LeadTimes,
    /// The metrics whose forecasts have metric series.
    pub(super) foreseen: BTreeSet<String>,
}

/// What is remembered of one workload in one cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct TargetState {
    /// Identity of the scale target that `history` is about.
    pub(super) target_uid: Option<String>,
    /// Stabilization and rate limits.
    pub(super) history: History,
    /// When the last change of the scale was applied.
    pub(super) last_scale: Option<Timestamp>,
    /// The `minReplicas` that the child autoscaler was left with, if there is one.
    pub(super) child_min: Option<Replicas>,
    /// The child autoscaler as it was left.
    pub(super) left: Option<Arc<HpaView>>,
    /// What the child autoscaler is expected to answer.
    pub(super) shadow: Conformance,
}

/// The states of all objects, by UID.
#[derive(Debug, Default)]
pub(super) struct StateStore(HashMap<String, ObjectState>);

// === impl StateStore ===

impl StateStore {
    /// The memory of an object; a first sight of it restores what its status kept.
    pub(super) fn of(&mut self, ehpa: &EffectiveHorizontalPodAutoscaler) -> &mut ObjectState {
        let uid = ehpa.metadata.uid.clone().unwrap_or_default();
        self.0
            .entry(uid)
            .or_insert_with(|| ObjectState::new(ehpa, OwnerKind::Owner))
    }

    /// Forgets the objects that are gone; returns what was remembered of them.
    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) -> Vec<ObjectState> {
        let gone = self.0.extract_if(|uid, _| !exists(uid));
        gone.map(|(_, memory)| memory).collect()
    }
}

// === impl ObjectState ===

impl ObjectState {
    /// The memory of an object that is seen for the first time: what its status kept.
    pub(super) fn new(ehpa: &EffectiveHorizontalPodAutoscaler, kin: OwnerKind) -> Self {
        let last_scale = ehpa
            .status
            .as_ref()
            .and_then(|status| status.last_scale_time.as_ref());
        Self {
            labels: ObjectLabels {
                kind: kin.resource(),
                namespace: ehpa.metadata.namespace.clone().unwrap_or_default(),
                name: ehpa.metadata.name.clone().unwrap_or_default(),
            },
            workload: None,
            valid: None,
            invalid: None,
            track: TargetState {
                last_scale: last_scale.map(|time| time.0),
                ..TargetState::default()
            },
            written: None,
            warned: None,
            lead_times: LeadTimes::default(),
            foreseen: BTreeSet::new(),
        }
    }
}

// === impl TargetState ===

impl TargetState {
    /// Remembers how the child autoscaler was left. One that was put right may have read and logged
    /// what we did not: its answers are not compared until it has settled again.
    pub(super) fn delegated(&mut self, effect: &Effect) {
        self.child_min = effect.child.as_deref().map(|hpa| as_child(hpa).min);
        self.left.clone_from(&effect.child);
        if !effect.deeds.is_empty() {
            self.shadow = Conformance::default();
        }
    }

    /// Remembers a change of the scale that was applied by us.
    pub(super) fn changed(
        &mut self,
        behavior: Option<&Behavior>,
        (from, to): (Replicas, Replicas),
        at: Timestamp,
    ) {
        self.history = std::mem::take(&mut self.history).applied(behavior, from, to, at);
        self.last_scale = Some(at);
    }

    /// Makes the history be about this target: restored, or fresh, or lost.
    ///
    /// A target seen for the first time takes what the object's status kept, with a hold for what
    /// it did not keep; an object without any status is new and has lost nothing. A recreated
    /// target starts afresh.
    pub(super) fn recall(
        &mut self,
        (ehpa, target_uid): (&EffectiveHorizontalPodAutoscaler, &str),
        behavior: Option<&Behavior>,
        settings: &Settings,
        now: Timestamp,
    ) {
        match self.target_uid.replace(target_uid.to_owned()) {
            Some(before) if before == target_uid => {}
            Some(_) => self.history = History::default(),
            None => {
                let status = ehpa.status.as_ref();
                if status.is_some_and(|status| status.decision.is_some()) {
                    let lost = History::lost(now, behavior, settings);
                    let kept = status.and_then(|status| status.history.as_ref());
                    self.history = kept.map_or(lost.clone(), |kept| restored(kept, lost, now));
                }
            }
        }
    }
}

/// The history in the shape that status keeps it in.
pub(super) fn kept(history: &History) -> HistoryStatus {
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
    }
}

/// A lost history, as far as status kept it; entries of the future are not believed.
fn restored(status: &HistoryStatus, lost: History, now: Timestamp) -> History {
    let past = |time: &MicroTime| time.0 <= now;
    let entries = || {
        status
            .recommendations
            .iter()
            .flatten()
            .filter(|entry| past(&entry.time))
    };
    let recommendations = entries()
        .filter(|entry| entry.lane == Lane::Observed)
        .map(|entry| {
            let replicas = Replicas::from_i32(entry.replicas);
            Recommendation {
                at: entry.time.0,
                replicas,
                mirrored: entry.mirrored.unwrap_or(false),
            }
        });
    let floors = entries()
        .filter(|entry| entry.lane == Lane::Floor)
        .map(|entry| RawFloor {
            at: entry.time.0,
            raw: Replicas::from_i32(entry.replicas),
        });
    let (ups, downs): (Vec<_>, Vec<_>) = status
        .events
        .iter()
        .flatten()
        .filter(|event| past(&event.time))
        .partition(|event| event.change > 0);
    let events = |events: Vec<&ScaleEventStatus>| {
        events
            .into_iter()
            .map(|event| ScaleEvent {
                at: event.time.0,
                change: Replicas::new(event.change.unsigned_abs()),
                outdated: false,
            })
            .collect()
    };
    let recommendations: Vec<_> = recommendations.collect();
    History {
        log: Log {
            recommendations: (!recommendations.is_empty()).then_some(recommendations),
            scale_up: events(ups),
            scale_down: events(downs),
            ..lost.log
        },
        floors: floors.collect(),
        ..lost
    }
}
