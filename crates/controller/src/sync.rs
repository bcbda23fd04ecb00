//! One sync of one object: it is observed, decided, written and reported, and delays no other object.
//!
//! ```text
//! validate -> observe -> decide -> apply -> record -> report
//! ```
//!
//! Each sync is a task of its own. It waits only for what its own object reads and writes, and a panic ends only it.
//! The state of the object is locked for single steps, never while something is read or written.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    child_hpa::ChildSpec,
    conflicts::TargetConflicts,
    decide::DecideContext,
    kind::{ItemOf, Kind, StateCellOf, StateOf},
    part::WorkItem,
    report::{INVALID_SPEC, ReportState, Reporter, Reports, Trouble},
    setup::{Setup, Shared},
    state::InForce,
};
use foretide_api::ports::Cluster;
use foretide_api::{autoscaler::Autoscaler, validation::Invalid};
use foretide_base::clock::Clock;

/// Context of every sync of a kind.
#[derive(Debug)]
pub struct SyncContext<C, K> {
    pub kind: K,
    pub clock: Clock,
    pub setup: Setup,
    pub shared: Shared,
    /// The queue of statuses and events, which are written without delaying a decision.
    pub reports: Arc<Reports<C>>,
}

/// An object that is due.
pub struct DueObject<K: Kind> {
    pub object: Arc<K::Object>,
    /// The object as an autoscaler of whichever kind.
    pub autoscaler: Autoscaler,
    /// The other autoscalers that act on the same target.
    pub conflicts: TargetConflicts,
    pub state: StateCellOf<K>,
    /// The reads that it shares with the other objects that are due.
    pub round: Arc<K::Round>,
}

/// Time of the next decision about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At the regular time of the object.
    Regular,
    /// Soon, because a write met a conflict.
    AfterConflict,
}

// === impl SyncContext ===

impl<C: Cluster, K: Kind> SyncContext<C, K> {
    /// One sync of one object.
    pub async fn sync(&self, due: DueObject<K>) -> Next {
        let started = self.clock.monotonic();
        let next = self.steps(due).await;
        let elapsed = self.clock.monotonic().since(started).as_secs_f64();
        self.kind.publish_sync(elapsed);
        next
    }

    async fn steps(&self, due: DueObject<K>) -> Next {
        let Some(item) = self.validate(&due) else {
            return Next::Regular;
        };
        let autoscaler = item.autoscaler.clone();
        let observed = self.kind.observe(&item, &due.state, &due.round).await;
        let observation = match observed {
            Ok(observation) => observation,
            Err(troubles) => {
                self.report_trouble(&autoscaler, &due.state, &troubles);
                return Next::Regular;
            }
        };
        let (decided, findings) = {
            let state = &mut due.state.lock();
            let context = DecideContext {
                settings: &self.setup.settings,
                now: self.follow(state),
            };
            self.kind.decide(&context, state, item, observation)
        };
        // Before the writes: they may take seconds and fail, and what was found is true whatever becomes of them.
        findings.record(autoscaler.uid(), &self.shared);
        let applied = self.kind.apply(decided).await;
        self.record_and_report(&due.state, applied)
    }

    /// The work that the object asks for; while its spec is invalid, the last valid one stays in force.
    fn validate(&self, due: &DueObject<K>) -> Option<ItemOf<K>> {
        let in_force = {
            let state = &mut due.state.lock();
            self.validate_new(due, state);
            state.in_force.clone().ok_or_else(|| state.invalid.clone())
        };
        let InForce { spec, child } = match in_force {
            Ok(in_force) => in_force,
            Err(invalid) => {
                let trouble = invalid.as_ref().map(never_valid);
                self.report_trouble(&due.autoscaler, &due.state, trouble.as_slice());
                return None;
            }
        };
        Some(WorkItem {
            owner: Arc::new(self.kind.owner(&due.object, &spec)),
            object: Arc::clone(&due.object),
            autoscaler: due.autoscaler.clone(),
            spec,
            child,
            conflicts: due.conflicts.clone(),
        })
    }

    /// Validates the spec of an object, unless the same spec was validated before.
    ///
    /// The generation does not tell: a server that is restored from a backup counts the same generations again. Nothing
    /// else that is validated can change: the namespace, the rules for targets, the zone and the settings are the same
    /// as long as this process runs. Annotations are not validated.
    fn validate_new(&self, due: &DueObject<K>, state: &mut StateOf<K>) {
        let validated = state.validated.replace(due.autoscaler.clone());
        if matches!(validated, Some(validated) if due.autoscaler.has_spec_of(&validated)) {
            return;
        }
        state.invalid = None;
        match self.kind.validate(&due.object) {
            Ok(spec) => {
                state.in_force = Some(InForce {
                    spec: Arc::new(spec),
                    child: Arc::new(ChildSpec::of(due.autoscaler.spec())),
                });
            }
            // `in_force` stays: a mistake in the spec must not stop autoscaling.
            Err(invalid) => state.invalid = Some(invalid),
        }
    }

    fn record_and_report(&self, state: &StateCellOf<K>, applied: K::Applied) -> Next {
        let state = &mut state.lock();
        // Again: the wall clock may have been stepped during the writes.
        let reporter = self.reporter(self.follow(state));
        let met_conflict = self.kind.record(state, &applied, reporter.now);
        self.reports
            .submit(self.kind.report(state, applied, &reporter));
        if met_conflict {
            Next::AfterConflict
        } else {
            Next::Regular
        }
    }

    /// Reports why nothing can be decided about an object.
    pub fn report_trouble(
        &self,
        autoscaler: &Autoscaler,
        state: &StateCellOf<K>,
        troubles: &[Trouble],
    ) {
        let reporter = self.reporter(self.clock.now());
        let report = reporter.trouble(&mut state.lock().report, autoscaler, troubles);
        self.reports.submit(report);
    }

    /// Removes the metric series of an object that is gone, and what the page shows of it.
    pub fn forget(&self, gone: &StateCellOf<K>) {
        let gone = &mut gone.lock();
        let ReportState {
            labels, forecast, ..
        } = &gone.report;
        self.shared.telemetry.forget(labels, forecast);
        let page = &self.shared.page;
        page.forget(K::KIND, &labels.namespace, &labels.name);
        self.kind.forget(gone);
    }

    /// Brings what is remembered of the object to the time now; returns that time.
    fn follow(&self, state: &mut StateOf<K>) -> Timestamp {
        let now = self.clock.reading();
        state.follow(now, self.setup.sync_period);
        now.wall()
    }

    fn reporter(&self, now: Timestamp) -> Reporter<'_> {
        Reporter {
            telemetry: &self.shared.telemetry,
            page: &self.shared.page,
            forecasts: &self.shared.forecasts,
            now,
            passed: self.clock.monotonic(),
        }
    }
}

/// The trouble of an object that never had a valid spec.
fn never_valid(invalid: &Invalid) -> Trouble {
    let message = format!("{invalid}; not reconciled until the spec is fixed");
    ("Ready", INVALID_SPEC, message)
}
