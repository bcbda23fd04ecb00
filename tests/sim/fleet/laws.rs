//! Laws of a fleet that hold after every second, no matter what fails.
//!
//! | law | meaning |
//! |---|---|
//! | one writer | what the holder of the lease has written in a member, nobody else writes there until the lease is his |
//! | intent | no HPA in a member has a maximum that the stored ledger has not given it |
//! | sums | the maxima and what is unassigned add up to `maxReplicas`, beside what members that do not answer keep |
//! | kept | under `Retain`, and for as long as is tolerated, no share of a member moves because something failed |
//! | heard | a member is unknown when it has been cut off for long, and not if nothing is wrong with it, though the hub was suspended |
//! | returns | a member that was lost gets a share again when it has answered for a cooldown |
//! | released | a fleet that is deleted goes in the end, whatever is known of the members |
//! | marks | an HPA in a member shows from which hub it is |
//! | connected | a member whose Secret is missing is read over the connection that there is |
//! | no dip | the pods that are ready never become fewer than the load of the last minute needs |
//! | minimum | once nothing fails any more, the fleet runs fewer than `minReplicas` for no longer than a sync |
//! | prompt | an edit of a fleet is taken up at once, whoever is silent or slow |
//! | retained | after a deletion with `Retain` no HPA is deleted |
//! | left | when a fleet is gone, no HPA is managed in a member that answers |
//! | rights | nothing is asked for in a member that its role forbids |

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use simkube::{Entry, network::Way};

use super::{
    scenario::Terms,
    world::{FLEETS, Ledger},
};
use crate::{
    cluster::{Cluster, PER_POD, SHOP},
    laws::RELISTED,
};

/// Largest delay of a write: one that the network delays, after one that the sender gave up.
const LATEST: SignedDuration = SignedDuration::from_secs(15);
/// Time for which the load must have been lower before a count follows it.
const MEMORY: SignedDuration = SignedDuration::from_secs(60);

/// Time without contact after which a member is lost and reported as such.
const LOST: SignedDuration = SignedDuration::from_secs(50);
/// The longest time until an edit is taken up: two syncs, each of which waits for members that do not answer.
const PROMPT: SignedDuration = SignedDuration::from_secs(9);
/// Time after a deletion until its writes have arrived where members answer.
const CLEAN: SignedDuration = SignedDuration::from_secs(100);
/// Time for which a lost member must answer before it has a share again.
const COOLDOWN: SignedDuration = SignedDuration::from_secs(30);
/// The longest time of a deletion.
const RELEASE: SignedDuration = SignedDuration::from_secs(330);

/// The label of the hub that has made an HPA.
const OF_HUB: &str = "autoscaling.foretide.io/hub";

/// The laws, with their memory of the fleet.
#[derive(Default)]
pub(super) struct FleetLaws {
    /// Number of checked requests of each server, the hub's under its own name.
    seen: BTreeMap<String, usize>,
    writers: Writers,
    /// The newest generation of the fleet, with the time of its appearance.
    edited: (u64, Timestamp),
    /// Time since which no fleet exists that is not being deleted.
    deleted: Option<Timestamp>,
    /// The stored ledgers of the last seconds, the newest last, each with the generation of its object.
    ledgers: Vec<(Timestamp, Ledger)>,
    /// The ledger that was stored when the hub was restored from a backup, with the time of the restore.
    forgotten: Option<(Timestamp, Ledger)>,
    ready: BTreeMap<String, u64>,
    /// Time of the last change of shares, with the number of ready pods.
    divided: (Timestamp, u64),
    /// Time at which a foreign HPA was there last. The managed HPA ends the pods beyond its maximum that the foreign
    /// one added.
    foreign: Option<Timestamp>,
    /// Numbers of pods that became ready in the last seconds.
    started: VecDeque<(Timestamp, u64)>,
    /// Time of each member's last trouble.
    troubled: BTreeMap<String, Timestamp>,
    /// Time since which each member has been cut off.
    cut: BTreeMap<String, Timestamp>,
    /// Time at which each member was lost last.
    lost: BTreeMap<String, Timestamp>,
    /// Number of times that each rule gave the reason of a member, by the rule's name.
    pub(super) rules: BTreeMap<&'static str, u64>,
}

/// The last writer of each object, in the present term of the lease.
#[derive(Default)]
struct Writers {
    by_object: BTreeMap<String, (String, u64)>,
    host: String,
    term: u64,
}

/// Facts for the laws about the second that is over.
pub(super) struct Second<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) terms: &'a Terms,
    /// The largest number of replicas that the fleet may run.
    pub(super) most: u64,
    /// Seconds for which each member has been disturbed; undisturbed members are absent.
    pub(super) disturbed: &'a BTreeMap<String, u64>,
    /// Some member was disturbed for longer than tolerated since budgets were divided.
    pub(super) has_failed: bool,
    /// Members whose Secret is missing, and to which every process has a connection.
    pub(super) connected: &'a BTreeSet<String>,
}

// === impl Second ===

impl Second<'_> {
    /// Returns whether some process does not reach a member.
    fn is_cut_off(&self, member: &str) -> bool {
        let hosts = self.cluster.hosts();
        let mut ways = hosts
            .iter()
            .map(|host| self.cluster.network().way(host, member));
        ways.any(|way| matches!(way, Way::Blocked | Way::Refused))
    }
}

// === impl Writers ===

impl Writers {
    fn check(&mut self, place: &str, entry: &Entry) -> Result<(), String> {
        if entry.access.resource == "leases" {
            let lease = entry.written.as_ref();
            let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            let host = holder
                .and_then(|identity| identity.split('_').next())
                .unwrap_or_default();
            if host != self.host {
                (self.host, self.term) = (host.to_owned(), self.term + 1);
            }
            return Ok(());
        }
        let object = format!("{place}: {}", entry.object());
        let last = self.by_object.get(&object);
        if last.is_some_and(|(host, term)| {
            *term == self.term && *host == self.host && *host != entry.client
        }) {
            return Err(format!(
                "one writer: {} has {} of {object} at {}, which the leader {} has written",
                entry.client, entry.access.verb, entry.time, self.host
            ));
        }
        let term = if entry.client == self.host {
            self.term
        } else {
            0
        };
        self.by_object.insert(object, (entry.client.clone(), term));
        Ok(())
    }
}

// === impl FleetLaws ===

impl FleetLaws {
    /// Returns the law that is broken by the events since the last check.
    pub(super) fn check(&mut self, second: &Second<'_>) -> Result<(), String> {
        self.note_troubled(second);
        let mut entries = Vec::new();
        let hub = ("hub", &second.cluster.server);
        let members = second
            .cluster
            .members
            .iter()
            .map(|(name, member)| (name, &member.server));
        for (place, server) in members.chain([hub]) {
            let seen = self.seen.entry(place.to_owned()).or_default();
            let new = server.audit_since(*seen);
            *seen += new.len();
            entries.extend(new.into_iter().filter(is_ours).map(|entry| (place, entry)));
        }
        // Ordered by the times at which they took effect.
        entries.sort_by_key(|(_, entry)| entry.time);
        for (place, entry) in &entries {
            self.check_write(place, entry, second)?;
        }
        self.check_ready(second)?;
        for (name, member) in second.cluster.members.iter() {
            if let Some(forbidden) = member.server.forbidden().first() {
                return Err(format!("rights in {name}: {forbidden:?}"));
            }
        }
        self.check_fleet(second)
    }

    /// Checks the end of the object itself.
    fn check_fleet(&mut self, second: &Second<'_>) -> Result<(), String> {
        let now = second.cluster.now();
        let fleet = second.cluster.server.objects(FLEETS).into_iter().next();
        let deleted = fleet.as_ref().and_then(|fleet| {
            fleet["metadata"]["deletionTimestamp"]
                .as_str()?
                .parse()
                .ok()
        });
        let exists = fleet.is_some();
        let Some(fleet) = fleet.filter(|_| deleted.is_none()) else {
            let since = *self.deleted.get_or_insert(deleted.unwrap_or(now));
            let age = now.duration_since(since);
            if second.terms.is_calm && exists && age > RELEASE {
                return Err("released: a deleted fleet is still there".to_owned());
            }
            return if exists || age <= CLEAN {
                Ok(())
            } else {
                self.check_left(second)
            };
        };
        self.deleted = None;
        let generation = fleet["metadata"]["generation"].as_u64().unwrap_or_default();
        if generation != self.edited.0 {
            self.edited = (generation, now);
        }
        // No generation is known before the first one has been taken up.
        let known = Ledger::of(&fleet).map_or(0, |ledger| ledger.generation);
        let is_due = known > 0 && now.duration_since(self.edited.1) > PROMPT;
        if is_due && known != generation && Self::is_up(second) {
            return Err(format!(
                "prompt: {known} is in force, and the fleet is {generation} since {}",
                self.edited.1
            ));
        }
        Ok(())
    }

    /// Returns whether one process runs that has never been stopped.
    fn is_up(second: &Second<'_>) -> bool {
        let Terms {
            is_calm,
            is_suspended,
            ..
        } = *second.terms;
        is_calm && !is_suspended && second.cluster.restarts() == 0
    }

    /// Checks that members that answer have no rest of a fleet that is gone.
    fn check_left(&self, second: &Second<'_>) -> Result<(), String> {
        let now = second.cluster.now();
        for name in second.cluster.members.names() {
            let troubled = self.troubled.get(&name);
            let is_well = troubled.is_none_or(|last| now.duration_since(*last) > CLEAN);
            let child = second.cluster.child(&name);
            if Self::is_up(second) && is_well && child.is_some_and(|child| is_managed(&child)) {
                return Err(format!("left: {name} has a managed HPA"));
            }
        }
        Ok(())
    }

    fn note_troubled(&mut self, second: &Second<'_>) {
        let now = second.cluster.now();
        // Processes that have just been started know nothing.
        if self.seen.is_empty() {
            let all = second.cluster.members.names().into_iter();
            self.troubled = all.map(|name| (name, now)).collect();
        }
        let disturbed = second.disturbed.keys();
        self.troubled
            .extend(disturbed.map(|name| (name.clone(), now)));
        self.cut.retain(|name, _| second.is_cut_off(name));
        for name in second
            .disturbed
            .keys()
            .filter(|name| second.is_cut_off(name))
        {
            let since = *self.cut.entry(name.clone()).or_insert(now);
            if now.duration_since(since) > LOST {
                self.lost.insert(name.clone(), now);
            }
        }
    }

    fn check_row(&self, row: &Value, now: Timestamp, second: &Second<'_>) -> Result<(), String> {
        let text = |field: &str| row[field].as_str().unwrap_or_default();
        let (name, reason) = (text("name"), text("reason"));
        let is_unknown = ["Unknown", "Failed", "No answer since"]
            .iter()
            .any(|unknown| reason.contains(unknown));
        // Observations from before a suspension are old, and nothing is written by them.
        let is_old = ["has delivered nothing", "no member can be"]
            .iter()
            .any(|old| reason.contains(old));
        // Also beside a report about the fleet as a whole.
        let is_silent = ["answer since", "watch event since"]
            .iter()
            .any(|silent| reason.contains(silent));
        let since = |times: &BTreeMap<String, Timestamp>| {
            let last = times.get(name).map(|last| now.duration_since(*last));
            last.unwrap_or(SignedDuration::MAX)
        };
        let Terms {
            is_calm,
            is_suspended,
            ..
        } = *second.terms;
        // Only while it is cut off: where its Secret returns at the same time, a new connection is made at once.
        let cut = self.cut.get(name).map(|since| now.duration_since(*since));
        let is_lost = cut.is_some_and(|cut| cut > LOST);
        let is_well = since(&self.troubled) > MEMORY && second.cluster.restarts() == 0;
        let is_missed = is_silent || is_unknown && !is_old;
        if is_calm && (is_well && is_missed || is_lost && !is_unknown && !is_suspended) {
            return Err(format!("heard: {name} is {reason}"));
        }
        let is_connected = second.connected.contains(name);
        if is_connected && reason.starts_with("Unknown: its Secret is missing") {
            return Err(format!("connected: {name} is not read: {reason}"));
        }
        Ok(())
    }

    fn check_write(
        &mut self,
        place: &str,
        entry: &Entry,
        second: &Second<'_>,
    ) -> Result<(), String> {
        let resource = &*entry.access.resource;
        if resource == "leases" || place != "hub" {
            self.writers.check(place, entry)?;
        }
        let written = entry.written.as_ref().ok_or("no write")?;
        match (place, resource) {
            ("hub", "federatedhpas/status") => self.check_status(written, entry.time, second),
            ("hub", _) => Ok(()),
            (member, "horizontalpodautoscalers") if entry.access.verb != "delete" => {
                let is_marked = written["metadata"]["labels"][OF_HUB].is_string();
                if second.terms.is_calm && is_managed(written) && !is_marked {
                    return Err(format!("marks: an HPA in {member} does not show its hub"));
                }
                self.check_intent(member, written, entry.time)
            }
            (member, "horizontalpodautoscalers") => {
                let is_gone = self.deleted.is_some_and(|at| entry.sent > at + LATEST);
                if second.terms.retains && is_gone {
                    return Err(format!("retained: an HPA in {member} is deleted"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_status(
        &mut self,
        fleet: &Arc<Value>,
        now: Timestamp,
        second: &Second<'_>,
    ) -> Result<(), String> {
        // A ledger may be stored together with rows that are older.
        let decided = fleet["status"]["decision"]["time"].as_str();
        let decided: Option<Timestamp> = decided.and_then(|at| at.parse().ok());
        let is_report = decided.is_some_and(|at| now.duration_since(at) < LATEST);
        let rows = fleet["status"]["clusters"].as_array().into_iter().flatten();
        for row in rows {
            if is_report {
                self.check_row(row, now, second)?;
            }
            let reason = row["reason"].as_str().unwrap_or_default();
            let reason = reason.split([':', ' ']).next().unwrap_or_default();
            let rule = RULES.iter().find(|(_, reasons)| reasons.contains(&reason));
            if let Some((rule, _)) = rule {
                *self.rules.entry(rule).or_default() += 1;
            }
        }
        let assigned = &fleet["status"]["conditions"];
        let is_refused = assigned
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Assigned" && one["status"] == "False");
        *self.rules.entry("R0").or_default() += u64::from(is_refused);
        let Some(ledger) = Ledger::of(fleet) else {
            return Ok(());
        };
        // Ledgers that were out of force by then do not count.
        let is_old = |(time, _): &(Timestamp, Ledger)| now.duration_since(*time) > LATEST + LATEST;
        let old = self.ledgers.partition_point(is_old);
        self.ledgers.drain(..old.saturating_sub(1));
        let before = self.ledgers.last().map(|(_, ledger)| ledger.clone());
        if before.as_ref() == Some(&ledger) {
            return Ok(());
        }
        check_sums(&ledger, fleet, second).map_err(|law| format!("{law}\n{ledger:?}"))?;
        let shares = |ledger: &Ledger| -> Vec<u64> {
            ledger.members.values().map(|entry| entry.max).collect()
        };
        if before.as_ref().map(shares) != Some(shares(&ledger)) {
            self.divided = (now, self.ready.values().sum());
        }
        if let Some(before) = before
            .filter(|before| before.uid == ledger.uid && before.generation == ledger.generation)
        {
            self.check_returns(&before, &ledger, now)?;
            self.check_kept(&before, &ledger, now, second)
                .map_err(|law| format!("{law}\n{before:?}\n{ledger:?}"))?;
        }
        self.ledgers.push((now, ledger));
        Ok(())
    }

    fn check_returns(&self, before: &Ledger, after: &Ledger, now: Timestamp) -> Result<(), String> {
        let recent = self.lost.iter().filter(|(_, last)| {
            now.duration_since(**last) < COOLDOWN - SignedDuration::from_secs(2)
        });
        let returns = |name: &String| {
            let had_failed = before
                .members
                .get(name)
                .is_some_and(|entry| entry.has_failed);
            had_failed && after.members.get(name).is_some_and(|entry| entry.has_share)
        };
        match recent.map(|(name, _)| name).find(|name| returns(name)) {
            Some(name) => Err(format!("returns: {name} has a share already")),
            None => Ok(()),
        }
    }

    /// Checks that no share moves between two ledgers of one spec, except by the rules about load and capacity.
    fn check_kept(
        &self,
        before: &Ledger,
        after: &Ledger,
        now: Timestamp,
        second: &Second<'_>,
    ) -> Result<(), String> {
        // A new member gets its share from the others.
        if after
            .members
            .keys()
            .any(|name| !before.members.contains_key(name))
        {
            return Ok(());
        }
        let mut all = before.members.values();
        let waits = all.any(|entry| entry.is_pinned || entry.has_failed);
        for (name, entry) in &before.members {
            let max = after.members.get(name).map_or(0, |entry| entry.max);
            // With a Secret that cannot be used, the member is reached over the existing connection.
            let cut = self.cut.get(name).map(|since| now.duration_since(*since));
            let is_away = cut.is_some_and(|cut| cut > LOST);
            let must_stay = second.terms.is_static && !waits || is_away;
            if must_stay && !second.has_failed && max != entry.max {
                return Err(format!(
                    "kept: the maximum of {name} was {} and is {max}",
                    entry.max
                ));
            }
        }
        Ok(())
    }

    /// Notes that the hub goes on from a backup with this fleet, if it has one.
    pub(super) fn restored(&mut self, now: Timestamp, fleet: Option<&Value>) {
        let last = self.ledgers.last();
        self.forgotten = last.map(|(_, ledger)| (now, ledger.clone()));
        match fleet.and_then(Ledger::of) {
            Some(ledger) => self.ledgers.push((now, ledger)),
            None => self.ledgers.clear(),
        }
    }

    /// Checks that the maximum of an HPA is one that the ledger gave it lately.
    fn check_intent(&self, member: &str, hpa: &Value, now: Timestamp) -> Result<(), String> {
        let most = hpa["spec"]["maxReplicas"].as_u64().unwrap_or_default();
        if !is_managed(hpa) || self.ledgers.is_empty() {
            return Ok(());
        }
        let (late, newest) = self.ledgers.split_at(self.ledgers.len() - 1);
        let is_within = |(time, _): &&(Timestamp, Ledger), span| now.duration_since(*time) < span;
        let late = late.iter().filter(|stored| is_within(stored, LATEST));
        // A watch that waits for a version that a restored server does not have is silent at first: until the list is
        // read again, the copy of the fleet, and with it its ledger, are those from before the restore.
        let forgotten = self.forgotten.iter();
        let forgotten = forgotten.filter(|stored| is_within(stored, RELISTED));
        let given: BTreeSet<u64> = late
            .chain(newest)
            .chain(forgotten)
            .filter_map(|(_, ledger)| ledger.members.get(member).map(|entry| entry.written.max(1)))
            .collect();
        if given.contains(&most) {
            return Ok(());
        }
        Err(format!(
            "intent: {member} has a maximum of {most} at {now}, and the ledger says {given:?}"
        ))
    }

    fn check_ready(&mut self, second: &Second<'_>) -> Result<(), String> {
        let (cluster, now) = (second.cluster, second.cluster.now());
        let ready = cluster.serving();
        let before = std::mem::replace(&mut self.ready, cluster.ready());
        // Under Duplicated no member serves for another, and a member that is deselected is drained at once.
        let ended = |member: &&String| {
            cluster
                .counts(member)
                .is_some_and(|(wanted, _)| wanted == 0)
        };
        let drained = before.keys().filter(|_| second.terms.is_duplicated());
        let drained: u64 = drained.filter(ended).map(|member| before[member]).sum();
        let before: u64 = before.values().sum();
        let needed = needed(cluster.load.least_between(SHOP, now - MEMORY, now)).min(second.most);
        if cluster.has_foreign_hpa() {
            self.foreign = Some(now);
        }
        let has_foreign = self
            .foreign
            .is_some_and(|at| now.duration_since(at) < MEMORY);
        self.started.push_back((now, ready.saturating_sub(before)));
        self.started
            .retain(|(at, _)| now.duration_since(*at) < MEMORY);
        // The usage of pods that have just started is not measured, as in upstream. In Direct they start while others
        // are kept for them, so the measured load is too small.
        let started = self.started.iter().filter(|_| second.terms.direct);
        let unmeasured: u64 = started.map(|(_, pods)| pods).sum();
        // A pod that its member has started meanwhile ends if it is beyond the new share: pods that were ready stay.
        let (divided, served) = self.divided;
        let had_fewer = ready >= served && now.duration_since(divided) < MEMORY;
        if ready + drained >= before || ready + unmeasured >= needed || has_foreign || had_fewer {
            return Ok(());
        }
        Err(format!(
            "no dip below {needed}: from {before} to {ready} ready\n{}",
            cluster.show()
        ))
    }
}

/// The reasons by rule. R1 is every reason of a member that is left alone.
pub(super) const RULES: [(&str, &[&str]); 12] = [
    ("R1", &["Unknown"]),
    ("R2", &["Failed", "Recovered"]),
    (
        "R3",
        &["Assigned", "NoBudget", "Landing", "Landed", "Drained"],
    ),
    ("R4", &["Foreign"]),
    ("R5", &["Blocked", "Relief", "NoCapacityAnywhere"]),
    ("R6", &["Saturated", "Donor", "FloorLifted"]),
    ("R7", &["Starved"]),
    ("R8", &["Optimized"]),
    ("R9", &["ShrinkOrder", "Held", "LocalDemand"]),
    ("R10", &["Slept", "Asleep"]),
    ("R11", &["Woken"]),
    ("R12", &["Steady", "Restored"]),
];

/// Returns the smallest number of pods for a load: each uses less than 56 % of its request, because percents are whole,
/// and up to 55 are within the tolerance of a target of 50.
pub(super) const fn needed(milli: u64) -> u64 {
    if milli == 0 {
        0
    } else {
        50 * milli / (56 * PER_POD) + 1
    }
}

fn is_ours(entry: &Entry) -> bool {
    entry.client.starts_with("pod-") && entry.written.is_some() && entry.access.resource != "events"
}

fn is_managed(hpa: &Value) -> bool {
    hpa["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "foretide"
}

/// Checks that the maxima of members that share one maximum, and the unassigned rest, add up to it.
fn check_sums(ledger: &Ledger, fleet: &Value, second: &Second<'_>) -> Result<(), String> {
    let spec = &fleet["spec"];
    let bound = |field: &str| spec[field].as_u64().unwrap_or_default();
    let kind = spec["federatedHPAAssignment"]["federatedHPAAssignmentType"].as_str();
    let is_of_spec = fleet["metadata"]["generation"].as_u64() == Some(ledger.generation);
    if !is_of_spec || kind == Some("Duplicated") {
        return Ok(());
    }
    let with_share = || ledger.members.iter().filter(|(_, entry)| entry.has_share);
    let kept: u64 = with_share()
        .filter(|(name, entry)| entry.is_pinned || second.disturbed.contains_key(*name))
        .map(|(_, entry)| entry.max)
        .sum();
    let all = with_share().map(|(_, entry)| entry.max).sum::<u64>() + ledger.unassigned;
    let most = bound("maxReplicas");
    let least = if second.has_failed || kept > 0 {
        0
    } else {
        most
    };
    if all < least || all > most + kept {
        return Err(format!("sums: the maxima add up to {all} of {most}"));
    }
    Ok(())
}
