//! Whose turn it is: which fleets are due, and what their objects ask for.
//!
//! An object that cannot be understood keeps what it last asked for, as everywhere. It decides nothing.

use std::{collections::HashSet, sync::Arc};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use kube::ResourceExt;

use super::{
    FleetAutoscaler, report,
    state::FleetState,
    work_item::{self, Due},
};
use crate::{
    api::ownership::{DELETION_POLICY, HUB, OwnerKind},
    api::spec,
    controller::{
        Setup,
        conflicts::{self, TargetConflicts},
        state::ObjectState,
        work_queue::Entry,
    },
    ports::{Cluster, Fleet},
};

// === impl FleetAutoscaler ===

impl<C: Cluster, F: Fleet> FleetAutoscaler<C, F> {
    /// The fleets whose turn it is, validated; forgets the ones that are gone.
    pub(super) async fn due(&mut self) -> Vec<Due> {
        let mut staying = self.hub.federated();
        staying.retain(|fdhpa| fdhpa.metadata.deletion_timestamp.is_none());
        let uids: HashSet<String> = staying.iter().filter_map(|fdhpa| fdhpa.uid()).collect();
        // Who cannot be read at the moment is not gone.
        let all_are_known = self.hub.every_federated().is_some();
        let is_gone = |uid: &String, _: &mut FleetState| all_are_known && !uids.contains(uid);
        for (_, mut gone) in self.memories.extract_if(is_gone) {
            let ObjectState {
                labels, foreseen, ..
            } = &gone.told;
            let telemetry = &self.told.telemetry;
            telemetry.forget(labels, foreseen);
            telemetry.divided(labels, &mut gone.shown, std::iter::empty());
        }
        self.told
            .telemetry
            .knows(OwnerKind::Fleet.resource(), staying.len());
        let identity = self.identity.as_deref();
        let wholes = staying
            .iter()
            .map(|fdhpa| Arc::new(as_one(fdhpa, identity)));
        let wholes: Vec<_> = wholes.collect();
        let entries: Vec<Entry<'_>> = staying
            .iter()
            .map(|fdhpa| Entry {
                uid: fdhpa.metadata.uid.as_deref().unwrap_or_default(),
                namespace: fdhpa.metadata.namespace.as_deref().unwrap_or_default(),
                generation: fdhpa.metadata.generation.unwrap_or_default(),
            })
            .collect();
        let due = self.schedule.due(&entries, self.clock.now());
        let mut rivals = conflicts::among(&wholes);
        let mut validated = Vec::with_capacity(due.len());
        for position in due {
            let (Some(fdhpa), Some(whole)) = (staying.get(position), wholes.get(position)) else {
                continue;
            };
            let uid = fdhpa.metadata.uid.as_deref().unwrap_or_default();
            let rivals = rivals.remove(uid).unwrap_or_default();
            validated.extend(self.understand((fdhpa, whole), rivals).await);
        }
        validated
    }

    /// What a fleet's object asks for; one that cannot be understood keeps what it last asked for.
    async fn understand(
        &mut self,
        (fdhpa, whole): (&Arc<FederatedHPA>, &Arc<EffectiveHorizontalPodAutoscaler>),
        rivals: TargetConflicts,
    ) -> Option<Due> {
        let Setup {
            local_zone,
            sync_period,
            settings,
            ..
        } = &self.setup;
        let understood = spec::fleet(fdhpa, local_zone, *sync_period, settings);
        let uid = fdhpa.uid().unwrap_or_default();
        let memory = self
            .memories
            .entry(uid)
            .or_insert_with(|| FleetState::new(fdhpa, whole));
        match understood {
            Ok(spec) => {
                memory.told.workload = Some(Arc::new(spec.workload.clone()));
                memory.told.valid = Some(Arc::clone(whole));
                memory.told.invalid = None;
                let question = Arc::new(work_item::question(&spec));
                memory.spec = Some((Arc::new(spec), question));
            }
            Err(invalid) if memory.spec.is_some() => memory.told.invalid = Some(invalid),
            Err(invalid) => {
                let board = report::StatusWriter::as_it_stands(&*self.hub, fdhpa);
                let reporter = board.reporter(&self.told.telemetry, self.clock.now());
                reporter.invalid(&mut memory.told, whole, &invalid).await;
            }
        }
        let (spec, question) = memory.spec.clone()?;
        Some(Due {
            fdhpa: Arc::clone(fdhpa),
            whole: Arc::clone(whole),
            valid: Arc::clone(memory.told.valid.as_ref().unwrap_or(whole)),
            spec,
            question,
            rivals,
            known: memory.known(),
            left: memory.left(),
        })
    }
}

/// A fleet's object as that of one workload, of which hub, and what becomes of what is created for it.
fn as_one(fdhpa: &FederatedHPA, hub: Option<&str>) -> EffectiveHorizontalPodAutoscaler {
    let mut whole = fdhpa.as_one();
    let annotations = whole.metadata.annotations.get_or_insert_default();
    annotations.extend(hub.map(|hub| (HUB.to_owned(), hub.to_owned())));
    let policy = fdhpa.spec.deletion_policy.unwrap_or_default();
    annotations.insert(DELETION_POLICY.to_owned(), format!("{policy:?}"));
    whole
}
