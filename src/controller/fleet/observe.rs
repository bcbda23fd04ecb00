//! First step of a fleet's sync: every member that concerns it is seen, all of them at once.
//!
//! Each member is seen as the autoscaler of one cluster sees its own, for all due objects together and within a
//! deadline of its own, so that a slow one delays the others by no more than that. A member that does not answer, or
//! whose answer is not whole, is unknown; it is never taken for empty. It decides nothing and writes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use jiff::Timestamp;

use super::{
    template::Template,
    work_item::{Due, is_asked_of_members},
};
use crate::{
    api::ownership::OwnerKind,
    controller::{
        child_hpa::{self, RelatedHpas, as_child},
        observe::{self, TargetObservation},
    },
    domain::{
        Replicas,
        federate::{Estimate, Health, PodShape, WorkloadSource},
        observation::{Container, Reading, Requests},
    },
    forecaster::forecasts::Forecasts,
    ports::{Cluster, ClusterError, Member, MemberView},
};

/// What was seen of one fleet.
#[derive(Debug)]
pub(super) struct Seen<M> {
    /// Every member that is a candidate or has something of ours, by name.
    pub(super) members: BTreeMap<String, MemberSeen<M>>,
    /// What the hub was asked for, by position in the spec's metrics.
    pub(super) hub: BTreeMap<usize, Reading>,
    /// The workload that the hub places, where it does, or why it cannot be read.
    pub(super) template: Placed,
}

/// A workload that the hub places and what one replica of it needs, or why it cannot be read; absent where others
/// place it.
type Placed = Option<Result<(Template, PodShape), ClusterError>>;

/// One member, and what was seen there.
#[derive(Debug)]
pub(super) struct MemberSeen<M> {
    /// The member.
    pub(super) view: Arc<MemberView<M>>,
    /// What was seen.
    pub(super) sight: MemberObservation,
}

/// What was seen of one member.
#[derive(Debug)]
pub(super) enum MemberObservation {
    /// The workload runs there.
    Whole(Box<Whole>),
    /// The member answers; the workload is not there.
    Absent {
        /// How many it holds.
        capacity: Option<Estimate>,
        /// The autoscalers that are there for it nevertheless.
        siblings: RelatedHpas,
    },
    /// Nothing can be said.
    Unknown {
        /// Why not.
        why: String,
        /// Whether it answers, and what cannot be read is this one workload.
        answers: bool,
    },
}

/// Everything about a workload in one member.
#[derive(Debug, Clone)]
pub(super) struct Whole {
    /// As in a cluster of its own; readings in the order of its question.
    pub(super) sighting: TargetObservation,
    /// Pods without a node, and since when the oldest is.
    pub(super) unschedulable: (Replicas, Option<Timestamp>),
    /// How many it holds in all.
    pub(super) capacity: Option<Estimate>,
    /// Whether the hub places the workload and this one is not from it.
    pub(super) foreign: bool,
    /// Who changed the replicas since they were seen last, if it was neither an autoscaler nor we.
    pub(super) hand: Option<String>,
}

// === impl Seen ===

impl<M> Seen<M> {
    /// The members that are not ready, and not only for what one fleet asks of them.
    pub(super) fn down(&self) -> BTreeSet<String> {
        let down = self.members.iter().filter(|(_, member)| member.is_down());
        down.map(|(name, _)| name.clone()).collect()
    }
}

// === impl MemberSeen ===

impl<M> MemberSeen<M> {
    /// Whether nothing can be said about it.
    pub(super) fn is_unknown(&self) -> bool {
        self.problem().is_some()
    }

    /// What keeps it from being scaled, if anything does: nothing can be said about it, it is not well, or it does not
    /// accept our credentials.
    pub(super) fn trouble(&self) -> Option<String> {
        let is_unwell = matches!(self.view.health, Health::NotReady { .. });
        let told = || {
            let problem = self.view.problem.as_deref();
            problem.map_or_else(|| "it is not ready".to_owned(), shortened)
        };
        let seen = || (is_unwell || self.view.refused).then(told);
        self.problem().map(shortened).or_else(seen)
    }

    /// Whether the member itself is not ready, and not only what one fleet asks of it.
    fn is_down(&self) -> bool {
        let is_silent = matches!(
            self.sight,
            MemberObservation::Unknown { answers: false, .. }
        );
        is_silent || self.view.refused || self.view.health != Health::Ready
    }

    /// Why nothing can be said about it, if so.
    pub(super) fn problem(&self) -> Option<&str> {
        match &self.sight {
            MemberObservation::Unknown { why, .. } => Some(why),
            MemberObservation::Whole(_) | MemberObservation::Absent { .. } => None,
        }
    }

    /// Whether nothing runs there, and nothing is to.
    pub(super) fn is_idle(&self) -> bool {
        match &self.sight {
            MemberObservation::Absent { .. } => true,
            MemberObservation::Unknown { .. } => false,
            MemberObservation::Whole(whole) => whole.is_idle(),
        }
    }

    /// The workload there, if it was seen.
    pub(super) fn whole(&self) -> Option<&Whole> {
        match &self.sight {
            MemberObservation::Whole(whole) => Some(whole),
            MemberObservation::Absent { .. } | MemberObservation::Unknown { .. } => None,
        }
    }
}

// === impl Whole ===

impl Whole {
    /// Whether nothing runs there, and nothing is to.
    pub(super) fn is_idle(&self) -> bool {
        let observation = &self.sighting.observation;
        observation.scale.spec == Replicas::ZERO && observation.pods.is_empty()
    }
}

/// Sees every due fleet.
pub(super) async fn gather<C: Cluster, M: Member>(
    hub: &C,
    members: &[Arc<MemberView<M>>],
    due: &[Due],
    (now, deadline): (Timestamp, Duration),
) -> Vec<Seen<M>> {
    let templates = join_all(due.iter().map(|due| template(hub, due))).await;
    let on_hub = join_all(due.iter().map(|due| on_hub(hub, due, deadline)));
    let of_members = join_all(members.iter().map(|view| {
        let concerned = due.iter().zip(&templates).enumerate();
        let concerned = concerned.filter(|(_, (due, _))| concerns(view, due));
        see(view, concerned.collect(), (now, deadline))
    }));
    let (on_hub, of_members) = futures::future::join(on_hub, of_members).await;
    let mut seen: Vec<_> = on_hub
        .into_iter()
        .zip(templates)
        .map(|(hub, template)| Seen {
            members: BTreeMap::new(),
            hub,
            template,
        })
        .collect();
    for (fleet, member) in of_members.into_iter().flatten() {
        if let Some(seen) = seen.get_mut(fleet) {
            let name = member.view.profile.name.clone();
            seen.members.insert(name, member);
        }
    }
    seen
}

/// Whether a member can run the workload, or has something of ours.
fn concerns<M: Member>(view: &MemberView<M>, due: &Due) -> bool {
    due.spec.policy.affinity.matches(&view.profile)
        || due.known.contains_key(&view.profile.name)
        || has_ours(view, due)
}

/// Whether a member has an autoscaler that the fleet created or adopted, as far as is known.
pub(super) fn has_ours<M: Member>(view: &MemberView<M>, due: &Due) -> bool {
    let namespace = &due.spec.workload.target.namespace;
    let hpas = view
        .cluster
        .iter()
        .flat_map(|cluster| cluster.hpas(namespace));
    hpas.into_iter()
        .any(|hpa| child_hpa::is_of_fleet(&hpa, due.uid()))
}

/// The fleet's own metrics, which are asked once.
async fn on_hub<C: Cluster>(hub: &C, due: &Due, patience: Duration) -> BTreeMap<usize, Reading> {
    let target = &due.spec.workload.target;
    let metrics = due.spec.workload.metrics.iter().enumerate();
    let asked = metrics.filter(|(_, metric)| !is_asked_of_members(&due.spec, metric));
    let readings = asked.map(|(position, metric)| async move {
        let asked = observe::ask(hub, &target.namespace, metric);
        (position, observe::within(Some(patience), asked).await)
    });
    join_all(readings).await.into_iter().collect()
}

/// The hub's object as members get it.
async fn template<C: Cluster>(hub: &C, due: &Due) -> Placed {
    if due.spec.policy.source != WorkloadSource::Hub {
        return None;
    }
    let target = &due.spec.workload.target;
    let uid = due.whole.metadata.uid.as_deref().unwrap_or_default();
    let (object, scale) = futures::future::join(hub.object(target), hub.scale(target)).await;
    let containers = scale.ok().and_then(|scale| scale.template);
    let like = shape(containers.as_deref());
    Some(object.map(|object| (Template::of(&object, uid), like)))
}

/// Sees one member for every fleet that it concerns; whoever had no answer in time is unknown.
async fn see<M: Member>(
    view: &Arc<MemberView<M>>,
    asked: Vec<(usize, (&Due, &Placed))>,
    (now, deadline): (Timestamp, Duration),
) -> Vec<(usize, MemberSeen<M>)> {
    let fleets: Vec<usize> = asked.iter().map(|(fleet, _)| *fleet).collect();
    let sights = match in_reach(view) {
        Err(why) => fleets.iter().map(|_| silent(&why)).collect(),
        Ok(cluster) => {
            let dues: Vec<_> = asked.into_iter().map(|(_, due)| due).collect();
            // Usage, then what else is measured: what is left of the time is for the scale, which decides.
            let when = (now, deadline / 3);
            let all = look(&**cluster, &view.profile.name, &dues, when);
            tokio::time::timeout(deadline, all)
                .await
                .unwrap_or_else(|_elapsed| {
                    let why = format!("it gave no answer within {deadline:?}");
                    fleets.iter().map(|_| silent(&why)).collect()
                })
        }
    };
    let of_member = |(fleet, sight)| {
        let view = Arc::clone(view);
        (fleet, MemberSeen { view, sight })
    };
    fleets.into_iter().zip(sights).map(of_member).collect()
}

/// Sees a member that answers, however long that takes; metrics that do not come in time are missing.
async fn look<M: Member>(
    cluster: &M,
    name: &str,
    due: &[(&Due, &Placed)],
    (now, patience): (Timestamp, Duration),
) -> Vec<MemberObservation> {
    let forecasts = Forecasts::default();
    let parts = due.iter().map(|(due, _)| observe::Due {
        left: due.left.get(name).cloned(),
        ..due.part(&due.question)
    });
    let when = (now, Some(patience));
    let seen = observe::gather(cluster, &forecasts, parts.collect(), when).await;
    let sights = seen.into_iter().zip(due);
    let sights = sights.map(|((_, sighting), (due, placed))| async move {
        let placed = placed.as_ref().and_then(|placed| placed.as_ref().ok());
        sight((cluster, name), (due, placed), sighting).await
    });
    join_all(sights).await
}

fn silent(why: &str) -> MemberObservation {
    MemberObservation::Unknown {
        why: why.to_owned(),
        answers: false,
    }
}

fn unknown(error: &ClusterError) -> MemberObservation {
    MemberObservation::Unknown {
        why: error.to_string(),
        answers: !matches!(error, ClusterError::Unreachable { .. }),
    }
}

/// The member's workloads, if it makes sense to ask for them now.
pub(super) fn in_reach<M: Member>(view: &MemberView<M>) -> Result<&Arc<M>, String> {
    let problem = view.problem.as_deref();
    let Some(cluster) = &view.cluster else {
        let problem = problem.unwrap_or("there is none");
        return Err(shortened(&format!("its Secret cannot be used: {problem}")));
    };
    match view.health {
        Health::Unknown { .. } => Err(shortened(problem.unwrap_or("it does not answer"))),
        Health::Ready | Health::NotReady { .. } if cluster.is_synced() => Ok(cluster),
        Health::Ready | Health::NotReady { .. } => Err(problem.map_or_else(
            || "it has not listed everything yet".to_owned(),
            |problem| shortened(&format!("it has not listed everything yet: {problem}")),
        )),
    }
}

/// As much of what is wrong with a member as a status has room for.
fn shortened(problem: &str) -> String {
    const MOST: usize = 240;
    match problem.char_indices().nth(MOST) {
        None => problem.to_owned(),
        Some((end, _)) => format!("{}...", problem.get(..end).unwrap_or_default()),
    }
}

async fn sight<M: Member>(
    (cluster, name): (&M, &str),
    (due, placed): (&Due, Option<&(Template, PodShape)>),
    sighting: Result<TargetObservation, ClusterError>,
) -> MemberObservation {
    let target = &due.spec.workload.target;
    let sighting = match sighting {
        Ok(sighting) => sighting,
        Err(ClusterError::NotFound { .. }) => {
            let capacity = placed.and_then(|(_, like)| cluster.capacity(target, "", like));
            let hpas = cluster.hpas(&target.namespace);
            let whose = (&*due.whole, OwnerKind::Fleet);
            let left = due.left.get(name).map(String::as_str);
            let siblings = RelatedHpas::of(whose, target, &hpas, (&due.rivals.uids, left));
            return MemberObservation::Absent { capacity, siblings };
        }
        Err(error) => return unknown(&error),
    };
    let unschedulable = match &*sighting.scale.selector {
        "" => Ok((Replicas::ZERO, None)),
        selector => cluster.unschedulable(&target.namespace, selector),
    };
    let template = placed.map(|(template, _)| template);
    let foreign = is_foreign(cluster, (due, template), &sighting).await;
    match (unschedulable, foreign) {
        (Err(error), _) | (_, Err(error)) => unknown(&error),
        (Ok(unschedulable), Ok(foreign)) => MemberObservation::Whole(Box::new(Whole {
            unschedulable,
            foreign,
            capacity: cluster.capacity(
                target,
                &sighting.scale.selector,
                &shape(containers(&sighting).as_deref()),
            ),
            hand: hand((cluster, name), due, &sighting).await,
            sighting,
        })),
    }
}

/// Whether a workload is not the one that the hub placed, where the hub places it: neither it nor the hub's own.
async fn is_foreign<M: Member>(
    cluster: &M,
    (due, template): (&Due, Option<&Template>),
    sighting: &TargetObservation,
) -> Result<bool, ClusterError> {
    let is_template = template.is_some_and(|template| template.uid == sighting.scale.uid);
    if due.spec.policy.source != WorkloadSource::Hub || is_template {
        return Ok(false);
    }
    let placed_for = cluster.placed_for(&due.spec.workload.target).await?;
    Ok(placed_for.as_deref() != Some(due.uid()))
}

/// Who changed the replicas, asked only where neither we nor the member's autoscaler can have.
async fn hand<M: Member>(
    (cluster, name): (&M, &str),
    due: &Due,
    sighting: &TargetObservation,
) -> Option<String> {
    let expected = due.known.get(name).copied().flatten();
    let found = sighting.scale.scale.spec;
    let child = sighting.siblings.acting();
    let scaled_to = child.and_then(|child| as_child(child).desired);
    if expected? == found || scaled_to == Some(found) {
        return None;
    }
    // Not to know is not to accuse.
    let target = &due.spec.workload.target;
    cluster.replicas_written_by(target).await.ok().flatten()
}

/// Containers of one more replica: by the pod template, else as the newest pod.
fn containers(sighting: &TargetObservation) -> Option<Arc<[Container]>> {
    let of_pod = || Some(Arc::clone(&sighting.observation.pods.last()?.containers));
    sighting.scale.template.clone().or_else(of_pod)
}

/// What such containers request together.
fn shape(containers: Option<&[Container]>) -> PodShape {
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for container in containers.into_iter().flatten() {
        for (resource, milli) in container.requests.iter() {
            let sum = sums.entry(resource.to_owned()).or_default();
            *sum = sum.saturating_add(milli);
        }
    }
    PodShape {
        requests: sums.into_iter().collect::<Requests>(),
        ..PodShape::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_member_is_told_in_two_hundred_and_forty_characters() {
        let long = "é".repeat(241);
        let cut = format!("{}...", "é".repeat(240));
        for (problem, expected) in [
            ("renew its Secret", "renew its Secret"),
            (&long[2..], &long[2..]),
            (&long, &cut),
        ] {
            assert_eq!(shortened(problem), expected);
        }
    }
}
