//! First step of a fleet's sync: every member that concerns it is observed, all of them at once.
//!
//! Each member is observed as an autoscaler of one cluster observes its own, for all due fleets together and within a
//! deadline, so that a slow one delays the others by no more than that. A member that does not answer, or whose answer
//! is incomplete, is unknown; it is never taken for empty. Nothing is decided here, and nothing is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::{join, join_all};
use jiff::Timestamp;

use super::{item::FleetItem, template::Template};
use crate::{
    controller::{
        child_hpa::{self, RelatedHpas, as_child},
        observe::{self, ReadTime, TargetObservation},
        part::Part,
    },
    domain::{
        Replicas,
        federate::{Estimate, Health, PodShape, WorkloadSource},
        observation::{Container, Reading, Requests},
    },
    forecaster::forecasts::Forecasts,
    ports::{Cluster, ClusterError, Member, MemberView},
};

/// A due fleet, and the stored state of its members.
#[derive(Debug)]
pub(super) struct DueFleet {
    /// What is due.
    pub(super) item: FleetItem,
    /// The members that have a share, or had one, and the replicas that are expected there.
    pub(super) known: BTreeMap<String, Option<Replicas>>,
    /// UIDs of the children that were written last, by member.
    pub(super) children: BTreeMap<String, String>,
}

/// What was seen of one fleet.
#[derive(Debug)]
pub(in crate::controller) struct FleetObservation<M> {
    /// Every member that is a candidate or has something of ours, by name.
    pub(super) members: BTreeMap<String, ObservedMember<M>>,
    /// The readings from the hub, by position in the spec's metrics.
    pub(super) hub: BTreeMap<usize, Reading>,
    /// The workload that the hub places, where it does, or why it cannot be read.
    pub(super) template: Placed,
}

/// A workload that the hub places and what one replica of it needs, or why it cannot be read; absent where others
/// place it.
type Placed = Option<Result<(Template, PodShape), ClusterError>>;

/// One member, and what was seen there.
#[derive(Debug)]
pub(super) struct ObservedMember<M> {
    /// The member.
    pub(super) view: Arc<MemberView<M>>,
    /// What was seen.
    pub(super) observed: MemberObservation,
}

/// What was seen of one member.
#[derive(Debug)]
pub(super) enum MemberObservation {
    /// The workload is there.
    Present(Box<Present>),
    /// The member answers; the workload is not there.
    Absent {
        /// How many replicas the member holds.
        capacity: Option<Estimate>,
        /// The HPAs that are there for it nevertheless.
        hpas: RelatedHpas,
    },
    /// The member, or the workload in it, cannot be observed.
    Unknown {
        /// Why not.
        problem: String,
        /// Whether the member answers, and only this workload cannot be read.
        answers: bool,
    },
}

/// Everything about a workload in one member.
#[derive(Debug, Clone)]
pub(super) struct Present {
    /// As for an autoscaler of one cluster; readings in the order of the observed workload.
    pub(super) observed: TargetObservation,
    /// Pods without a node.
    pub(super) unschedulable: Replicas,
    /// Since when the oldest of them has been unschedulable.
    pub(super) unschedulable_since: Option<Timestamp>,
    /// How many replicas the member holds in total.
    pub(super) capacity: Option<Estimate>,
    /// Whether the hub places the workload and this one is not from it.
    pub(super) foreign: bool,
    /// Who changed the replicas since they were seen last, if neither an HPA nor we did: the field manager.
    pub(super) replica_writer: Option<String>,
}

// === impl FleetObservation ===

impl<M> FleetObservation<M> {
    /// The members that are not ready, for any fleet.
    pub(super) fn down(&self) -> BTreeSet<String> {
        let down = self.members.iter().filter(|(_, member)| member.is_down());
        down.map(|(name, _)| name.clone()).collect()
    }
}

// === impl ObservedMember ===

impl<M> ObservedMember<M> {
    /// Whether it cannot be observed.
    pub(super) fn is_unknown(&self) -> bool {
        self.problem().is_some()
    }

    /// What keeps it from being scaled, if anything does: it cannot be observed, it is not ready, or it does not accept
    /// our credentials.
    pub(super) fn trouble(&self) -> Option<String> {
        let is_unready = matches!(self.view.health, Health::NotReady { .. });
        let reported = || {
            let problem = self.view.problem.as_deref();
            problem.map_or_else(|| "not ready".to_owned(), shortened)
        };
        let of_view = || (is_unready || self.view.refused).then(reported);
        self.problem().map(shortened).or_else(of_view)
    }

    /// Whether the member itself is not ready, rather than only the workload of one fleet.
    fn is_down(&self) -> bool {
        let is_unknown = matches!(
            self.observed,
            MemberObservation::Unknown { answers: false, .. }
        );
        is_unknown || self.view.refused || self.view.health != Health::Ready
    }

    /// Why it cannot be observed, if so.
    pub(super) fn problem(&self) -> Option<&str> {
        match &self.observed {
            MemberObservation::Unknown { problem, .. } => Some(problem),
            MemberObservation::Present(_) | MemberObservation::Absent { .. } => None,
        }
    }

    /// Whether no pods run there, and none are asked for.
    pub(super) fn is_idle(&self) -> bool {
        match &self.observed {
            MemberObservation::Absent { .. } => true,
            MemberObservation::Unknown { .. } => false,
            MemberObservation::Present(present) => present.is_idle(),
        }
    }

    /// The workload there, if it was seen.
    pub(super) fn present(&self) -> Option<&Present> {
        match &self.observed {
            MemberObservation::Present(present) => Some(present),
            MemberObservation::Absent { .. } | MemberObservation::Unknown { .. } => None,
        }
    }
}

// === impl Present ===

impl Present {
    /// Whether no pods run there, and none are asked for.
    pub(super) fn is_idle(&self) -> bool {
        let observation = &self.observed.observation;
        observation.scale.spec == Replicas::ZERO && observation.pods.is_empty()
    }
}

// === impl DueFleet ===

impl DueFleet {
    /// The fleet's part in a member, as it is observed.
    fn part_in(&self, member: &str) -> Part {
        Part {
            known_child: self.children.get(member).cloned(),
            ..self.item.observed_part()
        }
    }

    /// Whether a member can run the workload, or has something of ours.
    fn concerns<M: Member>(&self, view: &MemberView<M>) -> bool {
        let policy = &self.item.spec.spec.policy;
        policy.affinity.matches(&view.profile)
            || self.known.contains_key(&view.profile.name)
            || self.item.has_hpas_in(view)
    }

    /// The fleet's own metrics, which are read once.
    async fn read_fleet_metrics<C: Cluster>(
        &self,
        hub: &C,
        timeout: Duration,
    ) -> BTreeMap<usize, Reading> {
        let spec = &self.item.spec.spec;
        let namespace = &spec.workload.target.namespace;
        let metrics = spec.workload.metrics.iter().enumerate();
        let own = metrics.filter(|(_, metric)| !spec.is_read_in_members(metric));
        let readings = own.map(|(position, metric)| async move {
            let read = observe::read_without_pods(hub, namespace, metric);
            (position, observe::within(Some(timeout), read).await)
        });
        join_all(readings).await.into_iter().collect()
    }

    /// The hub's object as members get it.
    async fn read_template<C: Cluster>(&self, hub: &C) -> Placed {
        let spec = &self.item.spec.spec;
        if spec.policy.source != WorkloadSource::Hub {
            return None;
        }
        let target = &spec.workload.target;
        let (object, scale) = join(hub.object(target), hub.scale(target)).await;
        let containers = scale.ok().and_then(|scale| scale.template);
        let like = shape(containers.as_deref());
        let uid = &self.item.owner.uid;
        Some(object.map(|object| (Template::of(&object, uid), like)))
    }
}

// === impl FleetItem ===

impl FleetItem {
    /// The fleet's part in a member, with the workload as every member observes it.
    pub(super) fn observed_part(&self) -> Part {
        self.part(&self.spec.observed_workload)
    }

    /// Whether a member has an HPA that the fleet created or adopted, as far as is known.
    pub(super) fn has_hpas_in<M: Member>(&self, view: &MemberView<M>) -> bool {
        let namespace = &self.spec.spec.workload.target.namespace;
        let hpas = view.cluster.iter();
        let mut hpas = hpas.flat_map(|cluster| cluster.hpas(namespace));
        hpas.any(|hpa| child_hpa::is_of_fleet(&hpa, &self.owner.uid))
    }
}

/// Observes every due fleet. A member that has not answered within the deadline is unknown.
pub(super) async fn observe<C: Cluster, M: Member>(
    hub: &C,
    members: &[Arc<MemberView<M>>],
    due: &[DueFleet],
    deadline: Deadline,
) -> Vec<FleetObservation<M>> {
    let templates = join_all(due.iter().map(|fleet| fleet.read_template(hub))).await;
    let on_hub = due
        .iter()
        .map(|fleet| fleet.read_fleet_metrics(hub, deadline.limit));
    let of_members = members.iter().map(|view| {
        let fleets = due.iter().zip(&templates).enumerate();
        let concerned = fleets.filter(|(_, (fleet, _))| fleet.concerns(view));
        let concerned = concerned.map(|(position, (fleet, placed))| Concerned {
            position,
            fleet,
            placed: placed.as_ref().and_then(|placed| placed.as_ref().ok()),
        });
        observe_member(view, concerned.collect(), deadline)
    });
    let (on_hub, of_members) = join(join_all(on_hub), join_all(of_members)).await;
    let mut observed: Vec<_> = on_hub
        .into_iter()
        .zip(templates)
        .map(|(hub, template)| FleetObservation {
            members: BTreeMap::new(),
            hub,
            template,
        })
        .collect();
    for (position, member) in of_members.into_iter().flatten() {
        if let Some(observed) = observed.get_mut(position) {
            let name = member.view.profile.name.clone();
            observed.members.insert(name, member);
        }
    }
    observed
}

/// When members are observed, and how long each may take for everything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    /// The time of the sync.
    pub(super) now: Timestamp,
    /// How long one member may take.
    pub(super) limit: Duration,
}

/// A due fleet that a member concerns.
#[derive(Debug, Clone, Copy)]
struct Concerned<'a> {
    /// Its position among the due ones.
    position: usize,
    fleet: &'a DueFleet,
    /// The workload that the hub places, and what one replica of it needs.
    placed: Option<&'a (Template, PodShape)>,
}

/// Observes one member for every fleet that it concerns.
async fn observe_member<M: Member>(
    view: &Arc<MemberView<M>>,
    fleets: Vec<Concerned<'_>>,
    deadline: Deadline,
) -> Vec<(usize, ObservedMember<M>)> {
    let unobserved = |problem: &str| fleets.iter().map(|_| unobserved(problem)).collect();
    let observed: Vec<_> = match in_reach(view) {
        Err(problem) => unobserved(&problem),
        Ok(cluster) => {
            let all = observe_reachable(&**cluster, &view.profile.name, &fleets, deadline);
            tokio::time::timeout(deadline.limit, all)
                .await
                .unwrap_or_else(|_elapsed| {
                    unobserved(&format!("no answer within {:?}", deadline.limit))
                })
        }
    };
    let of_member = |(fleet, observed): (&Concerned<'_>, _)| {
        let view = Arc::clone(view);
        (fleet.position, ObservedMember { view, observed })
    };
    fleets.iter().zip(observed).map(of_member).collect()
}

/// Observes a member that answers, however long that takes; metrics that do not arrive in time are missing.
async fn observe_reachable<M: Member>(
    cluster: &M,
    name: &str,
    fleets: &[Concerned<'_>],
    deadline: Deadline,
) -> Vec<MemberObservation> {
    let parts: Vec<_> = fleets.iter().map(|one| one.fleet.part_in(name)).collect();
    // Usage, then the other metrics, may take a third each: the rest of the time is for the scale, without which
    // nothing is decided.
    let time = ReadTime {
        now: deadline.now,
        timeout: Some(deadline.limit / 3),
    };
    let observed = observe::observe(cluster, &Forecasts::default(), &parts, time).await;
    let members = observed.into_iter().zip(fleets).zip(&parts);
    let members = members.map(|((observed, fleet), part)| async move {
        let reader = WorkloadReader {
            cluster,
            name,
            fleet: *fleet,
            part,
        };
        reader.observe(observed).await
    });
    join_all(members).await
}

fn unobserved(problem: &str) -> MemberObservation {
    MemberObservation::Unknown {
        problem: problem.to_owned(),
        answers: false,
    }
}

fn unknown(error: &ClusterError) -> MemberObservation {
    MemberObservation::Unknown {
        problem: error.to_string(),
        answers: !matches!(error, ClusterError::Unreachable { .. }),
    }
}

/// A member's workloads, or why they cannot be read now.
pub(super) fn in_reach<M: Member>(view: &MemberView<M>) -> Result<&Arc<M>, String> {
    let problem = view.problem.as_deref();
    let Some(cluster) = &view.cluster else {
        let problem = problem.unwrap_or("no connection has been opened");
        return Err(shortened(&format!(
            "the Secret of the member cannot be used: {problem}"
        )));
    };
    match view.health {
        Health::Unknown { .. } => Err(shortened(problem.unwrap_or("no answer"))),
        Health::Ready | Health::NotReady { .. } if cluster.is_synced() => Ok(cluster),
        Health::Ready | Health::NotReady { .. } => Err(problem.map_or_else(
            || "the first list of its objects is not complete".to_owned(),
            |problem| {
                shortened(&format!(
                    "the first list of its objects is not complete: {problem}"
                ))
            },
        )),
    }
}

/// As much of a member's problem as a status has room for.
fn shortened(problem: &str) -> String {
    const MOST: usize = 240;
    match problem.char_indices().nth(MOST) {
        None => problem.to_owned(),
        Some((end, _)) => format!("{}...", problem.get(..end).unwrap_or_default()),
    }
}

/// Where one fleet's workload is observed in one member.
#[derive(Debug)]
struct WorkloadReader<'a, M> {
    cluster: &'a M,
    name: &'a str,
    fleet: Concerned<'a>,
    part: &'a Part,
}

// === impl WorkloadReader ===

impl<M: Member> WorkloadReader<'_, M> {
    /// What a fleet needs to know in addition to what every autoscaler observes.
    async fn observe(
        &self,
        observed: Result<TargetObservation, ClusterError>,
    ) -> MemberObservation {
        let target = &self.part.workload.target;
        let observed = match observed {
            Ok(observed) => observed,
            Err(ClusterError::NotFound { .. }) => {
                let placed = self.fleet.placed;
                let capacity = placed.and_then(|(_, like)| self.cluster.capacity(target, "", like));
                let hpas = self.part.related(&self.cluster.hpas(&target.namespace));
                return MemberObservation::Absent { capacity, hpas };
            }
            Err(error) => return unknown(&error),
        };
        let selector = &*observed.scale.selector;
        let unschedulable = if selector.is_empty() {
            Ok((Replicas::ZERO, None))
        } else {
            self.cluster.unschedulable(&target.namespace, selector)
        };
        let foreign = self.is_foreign(&observed).await;
        let ((unschedulable, unschedulable_since), foreign) = match (unschedulable, foreign) {
            (Err(error), _) | (_, Err(error)) => return unknown(&error),
            (Ok(unschedulable), Ok(foreign)) => (unschedulable, foreign),
        };
        let like = shape(containers(&observed).as_deref());
        MemberObservation::Present(Box::new(Present {
            unschedulable,
            unschedulable_since,
            foreign,
            capacity: self.cluster.capacity(target, selector, &like),
            replica_writer: self.replica_writer(&observed).await,
            observed,
        }))
    }

    /// Whether the hub places the workload and this one is neither from it nor the hub's own.
    async fn is_foreign(&self, observed: &TargetObservation) -> Result<bool, ClusterError> {
        let template = self.fleet.placed.map(|(template, _)| template);
        let is_template = template.is_some_and(|template| template.uid == observed.scale.uid);
        let item = &self.fleet.fleet.item;
        if item.spec.spec.policy.source != WorkloadSource::Hub || is_template {
            return Ok(false);
        }
        let placed_for = self.cluster.placed_for(&self.part.workload.target).await?;
        Ok(placed_for.as_deref() != Some(&*item.owner.uid))
    }

    /// Who changed the replicas, asked only where neither we nor the member's HPA can have.
    async fn replica_writer(&self, observed: &TargetObservation) -> Option<String> {
        let expected = self.fleet.fleet.known.get(self.name).copied().flatten();
        let found = observed.scale.scale.spec;
        let child = observed.hpas.acting();
        let scaled_to = child.and_then(|child| as_child(child).desired);
        if expected? == found || scaled_to == Some(found) {
            return None;
        }
        let target = &self.part.workload.target;
        let writer = self.cluster.replicas_written_by(target).await;
        // If the writer cannot be determined, report no conflict.
        writer.ok().flatten()
    }
}

/// Containers of one more replica: those of the pod template, else of the newest pod.
fn containers(observed: &TargetObservation) -> Option<Arc<[Container]>> {
    let of_pod = || Some(Arc::clone(&observed.observation.pods.last()?.containers));
    observed.scale.template.clone().or_else(of_pod)
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
    fn a_members_problem_is_cut_to_240_characters() {
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
