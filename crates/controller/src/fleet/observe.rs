//! First step of a fleet's sync: every member that concerns it is observed, all of them at once.
//!
//! Each member is observed as an autoscaler of one cluster observes its own, in a task of its own and within a deadline
//! of its own, so that neither a slow member nor another fleet makes it late. Nothing is decided here, and nothing is
//! written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use foretide_domain::{
    Replicas,
    observation::{Container, Reading, Requests},
};
use foretide_federate::{Health, Membership, PodShape, Profile, WorkloadSource};
use futures::future::{join, join_all};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{
    item::FleetItem,
    observation::{FleetObservation, MemberObservation, ObservedMember, Placed, Present, in_reach},
    template::Template,
};
use crate::{
    child_hpa::as_child,
    forecaster::forecasts::Forecasts,
    observe::{self, ClusterReads, TargetObservation, WorkloadObservation},
    part::Part,
};
use foretide_api::ports::{Cluster, ClusterError, Member, MemberView};

/// A due fleet, and the stored state of its members.
#[derive(Debug)]
pub struct DueFleet {
    pub item: FleetItem,
    /// The members that have a share, or had one, and the replicas that are expected in each.
    pub known: BTreeMap<String, Option<Replicas>>,
    /// The known members that stay in the fleet also when they are not registered any more.
    pub remaining: BTreeSet<String>,
    /// UIDs of the children that were written last, by member.
    pub children: BTreeMap<String, String>,
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

    /// True if a member can run the workload, or may have something of ours.
    fn concerns(&self, member: &Profile) -> bool {
        let policy = &self.item.fleet_spec().policy;
        policy.affinity.matches(member) || self.known.contains_key(&member.name)
    }

    /// The fleet's own metrics, which are read once.
    async fn read_fleet_metrics<C: Cluster>(
        &self,
        hub: &C,
        timeout: Duration,
    ) -> BTreeMap<usize, Reading> {
        let spec = self.item.fleet_spec();
        let namespace = &spec.workload.target.namespace;
        let mut reads = Vec::new();
        for (position, metric) in spec.workload.metrics.iter().enumerate() {
            if !spec.is_read_in_members(metric) {
                let read = observe::read_without_pods(hub, namespace, metric);
                reads.push(async move { (position, observe::within(timeout, read).await) });
            }
        }
        join_all(reads).await.into_iter().collect()
    }

    /// The hub's object as members get it.
    async fn read_template<C: Cluster>(&self, hub: &C, timeout: Duration) -> Placed {
        let spec = self.item.fleet_spec();
        if spec.policy.source != WorkloadSource::Hub {
            return None;
        }
        let target = &spec.workload.target;
        let reads = join(hub.object(target), hub.scale(target));
        let Ok((object, scale)) = tokio::time::timeout(timeout, reads).await else {
            return Some(Err(ClusterError::Unreachable {
                what: target.to_string(),
                message: format!("not read within {timeout:?}"),
            }));
        };
        let containers = scale.ok().and_then(|scale| scale.template);
        let like = shape(containers.as_deref());
        let uid = &self.item.owner.uid;
        Some(object.map(|object| (Template::of(&object, uid), like)))
    }
}

/// The reads of members that fleets which are due together share.
#[derive(Debug)]
pub struct FleetRound<M> {
    members: Vec<Arc<MemberView<M>>>,
    time: ReadTime,
    /// The reads, by member.
    reads: Mutex<BTreeMap<String, Arc<ClusterReads<M>>>>,
}

/// Time of the observation of members, and limits for their answers.
#[derive(Debug, Clone, Copy)]
pub struct ReadTime {
    /// The time of the observation.
    pub now: Timestamp,
    /// Time that one member may take for everything that one fleet asks of it.
    pub limit: Duration,
    /// Time without an answer after which a member is lost.
    pub lost_after: SignedDuration,
}

// === impl ReadTime ===

impl ReadTime {
    /// A member of which nothing but the name is known any more.
    fn missing<M>(self, name: &str) -> MemberView<M> {
        let since = self.now.saturating_add(self.lost_after).unwrap_or(self.now);
        let problem = format!(
            "its Secret is missing; restore it, or remove the member with foretide members remove {name}"
        );
        MemberView {
            profile: Profile {
                name: name.to_owned(),
                ..Profile::default()
            },
            membership: Membership::Missing,
            taints: Vec::new(),
            prometheus: None,
            // The earliest such time is kept from sync to sync.
            health: Health::Unknown { since },
            cluster: None,
            refused: false,
            problem: Some(problem),
            secret_problem: None,
        }
    }
}

// === impl FleetRound ===

impl<M: Member> FleetRound<M> {
    /// A round in which nothing is read yet.
    pub fn new(members: Vec<Arc<MemberView<M>>>, time: ReadTime) -> Self {
        Self {
            members,
            time,
            reads: Mutex::default(),
        }
    }

    /// True if there is no member at all.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members of a fleet that are not registered any more, although nobody removed them.
    fn missing(&self, fleet: &DueFleet) -> impl Iterator<Item = Arc<MemberView<M>>> {
        fleet.remaining.iter().filter_map(|name| {
            // The port returns members sorted by name.
            self.members
                .binary_search_by(|view| view.profile.name.cmp(name))
                .err()?;
            Some(Arc::new(self.time.missing(name)))
        })
    }

    /// Observes a due fleet. A member that has not answered within the deadline is unknown.
    pub async fn observe<C: Cluster>(&self, hub: &C, fleet: DueFleet) -> FleetObservation<M> {
        let limit = self.time.limit;
        let fleet = &Arc::new(fleet);
        // Before the members: their capacity, and whether their workload is the hub's, depend on it.
        let template = fleet.read_template(hub, limit).await;
        let placed = Arc::new(template.clone());
        let registered = self
            .members
            .iter()
            .filter(|view| fleet.concerns(&view.profile) || self.has_hpas_of(&fleet.item, view));
        // Tasks, so that arithmetic for one fleet does not use up the time of another one's members.
        let mut running = JoinSet::new();
        for view in registered.cloned().chain(self.missing(fleet)) {
            let reads = in_reach(&view).map(|cluster| self.reads_of(&view, cluster));
            let task = MemberTask {
                view,
                fleet: Arc::clone(fleet),
                placed: Arc::clone(&placed),
                limit,
            };
            running.spawn(task.run(reads));
        }
        let (hub, members) = join(fleet.read_fleet_metrics(hub, limit), running.join_all()).await;
        FleetObservation {
            members: members.into_iter().collect(),
            hub,
            template,
        }
    }

    /// True if a member has an HPA of a fleet, as far as is known.
    fn has_hpas_of(&self, fleet: &FleetItem, view: &MemberView<M>) -> bool {
        let namespace = &fleet.fleet_spec().workload.target.namespace;
        view.cluster.as_ref().is_some_and(|cluster| {
            let reads = self.reads_of(view, cluster);
            reads.hpas(namespace).has_of_fleet(&fleet.owner.uid)
        })
    }

    fn reads_of(&self, view: &MemberView<M>, cluster: &Arc<M>) -> Arc<ClusterReads<M>> {
        let mut reads = self.reads.lock();
        let of_member = reads.entry(view.profile.name.clone()).or_insert_with(|| {
            let ReadTime { now, limit, .. } = self.time;
            // Usage, then the other metrics, may take a third each: the rest of the time is for the scale, which
            // decides.
            Arc::new(ClusterReads::new(Arc::clone(cluster), now, limit / 3))
        });
        Arc::clone(of_member)
    }
}

/// One fleet in one member, to be observed.
struct MemberTask<M> {
    view: Arc<MemberView<M>>,
    fleet: Arc<DueFleet>,
    placed: Arc<Placed>,
    limit: Duration,
}

// === impl MemberTask ===

impl<M: Member> MemberTask<M> {
    /// Observes the member; returns its name with the observation.
    async fn run(self, reads: Result<Arc<ClusterReads<M>>, String>) -> (String, ObservedMember<M>) {
        let name = self.view.profile.name.clone();
        let observed = match reads {
            Err(problem) => MemberObservation::without_answer(problem),
            Ok(reads) => tokio::time::timeout(self.limit, self.observe(&reads))
                .await
                .unwrap_or_else(|_elapsed| {
                    let problem = format!("no answer within {:?}", self.limit);
                    MemberObservation::without_answer(problem)
                }),
        };
        let view = self.view;
        (name, ObservedMember { view, observed })
    }

    /// Observes a member that answers, however long that takes; metrics that do not come in time are missing.
    async fn observe(&self, reads: &ClusterReads<M>) -> MemberObservation {
        let name = &*self.view.profile.name;
        let part = &self.fleet.part_in(name);
        // The forecasts of a member are read when it is decided, for the metrics that are its own.
        let observed = reads.observe(&Forecasts::default(), part).await;
        WorkloadReader {
            reads,
            name,
            fleet: &self.fleet,
            placed: &self.placed,
            part,
        }
        .observe(observed)
        .await
    }
}

/// Reader of one fleet's workload in one member.
struct WorkloadReader<'a, M> {
    reads: &'a ClusterReads<M>,
    name: &'a str,
    fleet: &'a DueFleet,
    placed: &'a Placed,
    part: &'a Part,
}

// === impl WorkloadReader ===

impl<M: Member> WorkloadReader<'_, M> {
    /// Adds what a fleet needs to know to what every autoscaler observes.
    async fn observe(
        &self,
        observed: Result<TargetObservation, ClusterError>,
    ) -> MemberObservation {
        let (cluster, target) = (self.reads.cluster(), &self.part.workload.target);
        // After the reads, which may take seconds. The member answers, so it is not lost yet.
        if let Some(stale) = cluster.stale(target) {
            return MemberObservation::Unknown {
                problem: stale.to_string(),
                answers: true,
            };
        }
        let observed = match observed {
            Ok(observed) => observed,
            Err(ClusterError::NotFound { .. }) => {
                let like = self.template().map(|(_, like)| like);
                return MemberObservation::Absent {
                    capacity: like.and_then(|like| cluster.capacity(target, "", like)),
                    hpas: self.part.related(&self.reads.hpas(&target.namespace)),
                };
            }
            Err(error) => return MemberObservation::failed(&error),
        };
        let selector = &*observed.target.scale.selector;
        let unschedulable = if selector.is_empty() {
            Ok((Replicas::ZERO, None))
        } else {
            cluster.unschedulable(target, selector, observed.target.scale.scale.spec)
        };
        let foreign = self.is_foreign(&observed).await;
        let ((unschedulable, unschedulable_since), foreign) = match (unschedulable, foreign) {
            (Err(error), _) | (_, Err(error)) => return MemberObservation::failed(&error),
            (Ok(unschedulable), Ok(foreign)) => (unschedulable, foreign),
        };
        let like = shape(containers(&observed.workload).as_deref());
        MemberObservation::Present(Box::new(Present {
            unschedulable,
            unschedulable_since,
            foreign,
            capacity: cluster.capacity(target, selector, &like),
            replica_writer: self.replica_writer(&observed).await,
            observed,
        }))
    }

    /// True if the hub places the workload and this one is neither from it nor the hub's own.
    async fn is_foreign(&self, observed: &TargetObservation) -> Result<bool, ClusterError> {
        let is_template = self
            .template()
            .is_some_and(|(template, _)| template.uid == observed.target.scale.uid);
        if self.placed.is_none() || is_template {
            return Ok(false);
        }
        let target = &self.part.workload.target;
        let placed_for = self.reads.cluster().placed_for(target).await?;
        Ok(placed_for.as_deref() != Some(&*self.fleet.item.owner.uid))
    }

    /// The workload that the hub places, and the needs of one replica of it, if they could be read.
    fn template(&self) -> Option<&(Template, PodShape)> {
        self.placed.as_ref()?.as_ref().ok()
    }

    /// Field manager that changed the replicas, asked for only where neither we nor the member's HPA can have.
    async fn replica_writer(&self, observed: &TargetObservation) -> Option<String> {
        let expected = (*self.fleet.known.get(self.name)?)?;
        let found = observed.target.scale.scale.spec;
        let scaled_to = observed
            .target
            .hpas
            .acting()
            .and_then(|child| as_child(child).desired);
        if expected == found || scaled_to == Some(found) {
            return None;
        }
        let target = &self.part.workload.target;
        // If the writer cannot be determined, report no conflict.
        let cluster = self.reads.cluster();
        cluster.replicas_written_by(target).await.ok().flatten()
    }
}

/// Containers of one more replica: those of the pod template, else of one of the pods.
fn containers(observed: &WorkloadObservation) -> Option<Arc<[Container]>> {
    let containers = match &observed.template {
        Some(containers) => containers,
        None => &observed.observation.pods.last()?.containers,
    };
    Some(Arc::clone(containers))
}

/// The shape of a pod with these containers: the sum of their requests.
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
