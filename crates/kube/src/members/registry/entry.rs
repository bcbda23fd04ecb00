//! The state of one member in the registry: its description, its connections, and the problems with its Secret.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use foretide_federate::{Health, Membership};
use jiff::{SignedDuration, Timestamp};

use super::MemberReport;
use crate::{
    cluster::KubeMember,
    members::{
        connection::{HealthReport, MemberConnection},
        kubeconfig::Access,
        secret::MemberInfo,
    },
};
use foretide_api::ports::MemberView;
use foretide_base::clock::ClockReading;

/// One member.
#[derive(Debug)]
pub struct RegistryEntry {
    pub info: MemberInfo,
    /// The report of its `ClusterProfile` that it is not healthy.
    unhealthy: Option<Unhealthy>,
    /// Time since when the Secret cannot be used, and the reason.
    failed: Option<(ClockReading, String)>,
    /// Restarts of the parts of all its connections.
    pub restarts: Arc<AtomicU64>,
    connection: Option<MemberConnection>,
    /// A connection with newer credentials, which replaces the other when its stores are complete.
    pub pending: Option<MemberConnection>,
}

/// The report of a `ClusterProfile` that its member is not healthy.
#[derive(Debug, Clone, Copy)]
struct Unhealthy {
    /// The time of the report, by another clock.
    reported: Timestamp,
    /// The time of the report on our clock, as it was then.
    since: Timestamp,
    /// Readings of our clocks when the report was seen first.
    seen: ClockReading,
}

// === impl Unhealthy ===

impl Unhealthy {
    /// Time since when the member is not healthy, on the wall clock as it is now.
    fn since(self, now: ClockReading) -> Timestamp {
        after_steps(self.since, self.seen, now)
    }
}

/// A time of our wall clock that was noted `then`, on the clock as it is now.
fn after_steps(at: Timestamp, then: ClockReading, now: ClockReading) -> Timestamp {
    at.saturating_add(now.step_since(then)).unwrap_or(at)
}

// === impl RegistryEntry ===

impl RegistryEntry {
    pub fn new(info: &MemberInfo) -> Self {
        Self {
            info: info.clone(),
            unhealthy: None,
            failed: None,
            restarts: Arc::default(),
            connection: None,
            pending: None,
        }
    }

    /// Takes over the report of the `ClusterProfile`; none if it reports no problem.
    pub fn set_unhealthy(&mut self, reported: Option<Timestamp>, now: ClockReading) {
        self.unhealthy = match (reported, self.unhealthy) {
            (Some(reported), Some(known)) if known.reported == reported => Some(known),
            (reported, _) => reported.map(|reported| Unhealthy {
                reported,
                // A report does not come from the future.
                since: reported.min(now.wall()),
                seen: now,
            }),
        };
    }

    /// True if these credentials are in use or are tried already. Newer ones that are tried are dropped if the Secret
    /// is back at those in use.
    pub fn keeps(&mut self, access: &Access) -> bool {
        let is_in_use = self.connection.as_ref().map(|it| &it.access) == Some(access);
        if is_in_use {
            self.pending = None;
        }
        let is_kept = is_in_use || self.pending.as_ref().map(|it| &it.access) == Some(access);
        if is_kept && self.failed.take().is_some() {
            let member = &self.info.profile.name;
            tracing::info!(member, "the Secret of a member can be used again");
        }
        is_kept
    }

    /// Adds a connection with new credentials. One that has read the member stays in use until the new one has.
    pub fn replace(&mut self, connection: MemberConnection) {
        self.failed = None;
        self.promote();
        if self.has_been_read() {
            self.pending = Some(connection);
        } else {
            self.connection = Some(connection);
        }
    }

    /// Records that the credentials are gone or cannot be used. A connection with the former ones stays in use, unless
    /// it has never read the member.
    pub fn fail(&mut self, problem: String, now: ClockReading) {
        let since = self.failed.as_ref().map_or(now, |(since, _)| *since);
        self.promote();
        let serves = self.has_been_read();
        if self.failed.as_ref().is_none_or(|(_, it)| *it != problem) {
            let member = &self.info.profile.name;
            tracing::warn!(
                member,
                problem,
                serves,
                "the Secret of a member cannot be used"
            );
        }
        self.failed = Some((since, problem));
        if !serves {
            (self.connection, self.pending) = (None, None);
        }
    }

    /// True if the member stays although it is no longer listed: nobody said that it leaves, and the connection serves.
    pub fn outlives_its_secret(&mut self, now: ClockReading) -> bool {
        if self.info.leaving {
            return false;
        }
        let remove = &self.info.profile.name;
        self.fail(
            format!(
                "its Secret is missing; restore it, or remove the member with foretide members remove {remove}"
            ),
            now,
        );
        self.connection.is_some()
    }

    /// True if the connection in use has read everything that a sync needs, now or before.
    fn has_been_read(&self) -> bool {
        self.connection.iter().any(MemberConnection::is_synced)
    }

    /// Uses the pending connection if its stores are complete.
    pub fn promote(&mut self) {
        if let Some(synced) = self.pending.take_if(|new| new.is_synced()) {
            self.connection = Some(synced);
        }
    }

    /// The connection in use: the newer one as soon as it has read the member. Until then the older one stays, also
    /// when it is not ready: it knows since when.
    pub fn serving(&self) -> Option<&MemberConnection> {
        let newer = self.pending.as_ref().filter(|new| new.is_synced());
        newer.or(self.connection.as_ref())
    }

    /// The state of the member, for metrics.
    pub fn member_report(
        &self,
        name: &str,
        lost_after: SignedDuration,
        now: ClockReading,
    ) -> MemberReport {
        let report = self.report(lost_after, now);
        MemberReport {
            name: name.to_owned(),
            ready: report.health == Health::Ready && !report.unauthorized,
            silence: self.serving().map(MemberConnection::silence),
            usable: self.secret_problem(now).is_none() || self.info.leaving,
            restarts: self.restarts.load(Ordering::Relaxed),
        }
    }

    /// Reason why the credentials in the Secret cannot be used.
    fn secret_problem(&self, now: ClockReading) -> Option<String> {
        if let Some((since, problem)) = &self.failed {
            let since = after_steps(since.wall(), *since, now);
            return Some(format!("{problem} (since {since:.0})"));
        }
        let HealthReport {
            health,
            problem,
            unauthorized,
        } = self.pending.as_ref()?.report();
        let is_lost = matches!(health, Health::Unknown { since } if since <= now.wall());
        let problem = problem.filter(|_| unauthorized || is_lost)?;
        Some(format!("the new credentials are not used: {problem}"))
    }

    /// Health of the member. A member whose Secret cannot be used is lost `lost_after` later, like one that does not
    /// answer.
    fn report(&self, lost_after: SignedDuration, now: ClockReading) -> HealthReport {
        let report = self.serving().map(MemberConnection::report);
        match (report, self.unhealthy) {
            // Only where the connection is well. If it is not, its own problem says more.
            (Some(known), Some(reported))
                if known.health == Health::Ready && !known.unauthorized =>
            {
                let problem = "its ClusterProfile reports ControlPlaneHealthy=False";
                HealthReport {
                    health: Health::NotReady {
                        since: reported.since(now),
                    },
                    problem: Some(problem.to_owned()),
                    unauthorized: false,
                }
            }
            (Some(known), _) => known,
            (None, _) => {
                let (failed_at, problem) = self.failed.clone().unzip();
                // Without a connection and without a failure nothing is known: lost from the beginning.
                let failed = failed_at.map_or(Timestamp::UNIX_EPOCH, |then| {
                    after_steps(then.wall(), then, now)
                });
                let since = failed.saturating_add(lost_after).unwrap_or(failed);
                HealthReport {
                    health: Health::Unknown { since },
                    problem,
                    unauthorized: false,
                }
            }
        }
    }

    pub fn view(&self, lost_after: SignedDuration, now: ClockReading) -> MemberView<KubeMember> {
        let HealthReport {
            health,
            problem,
            unauthorized,
        } = self.report(lost_after, now);
        let cluster = self.serving().map(|connection| connection.cluster.clone());
        // Without a connection it is the problem of the member.
        let secret_problem = self.secret_problem(now).filter(|_| cluster.is_some());
        let membership = if self.info.leaving {
            Membership::Leaving
        } else {
            Membership::Listed
        };
        MemberView {
            profile: self.info.profile.clone(),
            membership,
            taints: self.info.taints.clone(),
            prometheus: self.info.prometheus.clone(),
            health,
            refused: unauthorized,
            cluster,
            // The problem is shown as the reason why a member is lost, so a problem with its annotations must not take
            // its place.
            problem: match health {
                Health::Unknown { .. } => with(problem, secret_problem.as_deref()),
                _ => problem.or_else(|| self.info.problem.clone()),
            },
            secret_problem,
        }
    }
}

/// A problem and that of the Secret, which may be its cause.
fn with(problem: Option<String>, secret_problem: Option<&str>) -> Option<String> {
    match (problem, secret_problem) {
        (Some(problem), Some(of_secret)) => Some(format!("{problem}; {of_secret}")),
        (problem, _) => problem,
    }
}
