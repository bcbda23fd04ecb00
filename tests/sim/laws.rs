//! Laws that hold after every second, no matter what fails.
//!
//! | law | meaning |
//! |---|---|
//! | bounds | no count is set below `minReplicas` or above `maxReplicas` |
//! | floor | a count that has reached the floor of an open window stays there until it ends |
//! | no dip | a count never falls below what the load of the last minutes needs |
//! | gate | nothing is sent by a process whose lease may run out before it arrives, or that has given it back |
//! | one writer | what the holder of the lease has written, nobody else writes until the lease is his |
//! | release | a process that ends in order leaves no lease behind because an own renewal came late |
//! | stale | a process that has not seen the cluster as it is for long scales nothing |
//! | preview | nothing is scaled by an autoscaler that only shows what it would do |
//! | step | a count is at most doubled from what it is then, or 4, or what a window or `minReplicas` asks for |
//! | patience | what was refused with a time to wait is not asked again before (see [`crate::cluster`]) |
//! | blind | while a metric has no value, a count changes by floors and bounds only |
//! | minimum | once nothing fails any more, no count but zero stays below `minReplicas` for longer than a sync |
//! | rights | nothing is asked for that the roles of `deploy/` forbid |

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use simkube::{Entry, SimKube};

use crate::cluster::{EHPAS, Load, PER_POD, PERIOD};

/// Time without news after which a process scales no more: a minute, and running writes.
const STALE: SignedDuration = SignedDuration::from_secs(80);
/// Time until an edit is in force: requests may be late, and a cluster needs a sync to take notice.
const IN_FORCE: SignedDuration = SignedDuration::from_secs(40);
/// Time after a restore until everything has been listed again.
pub(crate) const RELISTED: SignedDuration = SignedDuration::from_secs(60);
/// Time that a lease lasts after the request that has renewed it was sent.
const LEASE: SignedDuration = SignedDuration::from_secs(15);
/// Time for which the holder of a lease may write: a request takes up to five seconds.
const WRITES: SignedDuration = SignedDuration::from_secs(10);
/// Time for which a count may be below its minimum: a period, and running writes.
const RAISED: SignedDuration = SignedDuration::from_secs(PERIOD.as_secs().cast_signed() + 2);
/// Time for which the load must have been lower before a count follows it.
const MEMORY: SignedDuration = SignedDuration::from_secs(60);
/// Time for which the HPA algorithm leaves new pods out of a count. At a ratio of 0.75 it asks for 6 of 12 pods, of
/// which 4 are new.
const YOUNG: SignedDuration = SignedDuration::from_secs(30);

/// The laws, with their memory of the cluster.
pub(crate) struct Laws {
    server: SimKube,
    load: Load,
    /// Number of checked requests.
    seen: usize,
    /// UID and count of each Deployment.
    counts: BTreeMap<String, (Value, u64)>,
    /// The count that was written last, by namespace and Deployment.
    written: BTreeMap<(String, String), u64>,
    /// Time at which pods were added last, by Deployment.
    risen: BTreeMap<String, Timestamp>,
    /// Limits of each autoscaler, with the times of their beginning. The last one is in force.
    allowed: BTreeMap<String, Vec<(Timestamp, Allowed)>>,
    /// The resource that was not granted.
    pub(crate) may_be_refused: &'static str,
    /// Time since which hosts have no news.
    stale: BTreeMap<String, Timestamp>,
    /// Time since which the connections of hosts are silent.
    stranded: BTreeMap<String, Timestamp>,
    /// Time since which the metrics of an app have no value; of all apps, if it has no name.
    blind: BTreeMap<String, Timestamp>,
    /// Time of the last backup.
    backed_up: Timestamp,
    /// The value of `risen` in that backup.
    risen_in_backup: BTreeMap<String, Timestamp>,
    /// Time at which the server went on from it.
    restored: Timestamp,
    /// Time since which nothing fails any more and everything has been listed again.
    calm: Timestamp,
    /// Time since which a count is below its minimum, by Deployment.
    below: BTreeMap<String, Timestamp>,
    /// The Deployments that a user has scaled since the last look.
    by_hand: BTreeSet<String>,
    /// The last writer of each object, with the term of the lease.
    writers: BTreeMap<String, Writer>,
    term: Writer,
    /// Time since which the term lasts.
    term_since: Timestamp,
    /// Time of sending and code of the last sent request for the lease among those that have arrived, by host.
    lease_codes: BTreeMap<String, (Timestamp, u16)>,
    /// End of the lease of each host.
    leases: BTreeMap<String, Timestamp>,
}

/// Replicas that a spec allows. A preview allows no change but to its `specificReplicas`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Allowed {
    least: u64,
    most: u64,
    acts: bool,
}

/// A host, and the number of leases that were taken until then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Writer {
    host: String,
    term: u64,
}

// === impl Laws ===

impl Laws {
    pub(crate) fn new(server: &SimKube, load: &Load) -> Self {
        Self {
            server: server.clone(),
            load: load.clone(),
            seen: 0,
            counts: BTreeMap::new(),
            written: BTreeMap::new(),
            risen: BTreeMap::new(),
            allowed: BTreeMap::new(),
            stale: BTreeMap::new(),
            stranded: BTreeMap::new(),
            blind: BTreeMap::new(),
            backed_up: Timestamp::MIN,
            risen_in_backup: BTreeMap::new(),
            restored: Timestamp::MIN,
            calm: Timestamp::MAX,
            below: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            writers: BTreeMap::new(),
            term: Writer::default(),
            term_since: Timestamp::MIN,
            lease_codes: BTreeMap::new(),
            may_be_refused: "",
            leases: BTreeMap::new(),
        }
    }

    /// Returns the law that is broken by the events since the last check.
    pub(crate) fn check(&mut self, now: Timestamp) -> Result<(), String> {
        let entries = self.server.audit_since(self.seen);
        self.seen += entries.len();
        self.by_hand.clear();
        for entry in &entries {
            if entry.client == "kubectl" && entry.access.resource == "deployments/scale" {
                self.by_hand.insert(entry.access.name.clone());
            }
            if entry.access.resource == "leases" {
                self.note_lease_code(entry);
            }
            if entry.written.is_some() {
                self.check_step(entry)?;
                self.check_writer(entry)?;
            }
        }
        self.check_counts(now)?;
        let mut forbidden = self.server.forbidden().into_iter();
        match forbidden.find(|(_, access)| access.resource != self.may_be_refused) {
            Some(forbidden) => Err(format!("rights: {forbidden:?}")),
            None => Ok(()),
        }
    }

    /// Notes the code of a request for the lease. A renewal that was given up can arrive when later ones have, and is
    /// refused then: that says nothing about the release, whose requests may not have arrived at all.
    fn note_lease_code(&mut self, entry: &Entry) {
        let (sent, code) = self.lease_codes.entry(entry.client.clone()).or_default();
        if entry.sent >= *sent {
            (*sent, *code) = (entry.sent, entry.code);
        }
    }

    /// Checks the end of a process in order: its last request for the lease was not refused.
    pub(crate) fn check_release(&self, host: &str) -> Result<(), String> {
        let code = self.lease_codes.get(host).map(|(_, code)| *code);
        let has_conflict = code == Some(409);
        if has_conflict && self.term.host == host {
            return Err(format!(
                "release: {host} has ended and still holds the lease"
            ));
        }
        Ok(())
    }

    fn check_step(&mut self, entry: &Entry) -> Result<(), String> {
        let (access, written) = (&entry.access, entry.written.as_ref());
        let count = written.and_then(|object| object["spec"]["replicas"].as_u64());
        let Some(count) = count.filter(|_| access.resource.starts_with("deployments")) else {
            return Ok(());
        };
        let before = self
            .written
            .insert((access.namespace.clone(), access.name.clone()), count);
        // After a restore it is not known.
        let Some(before) = before else {
            return Ok(());
        };
        let is_ours = entry.client.starts_with("pod-") && access.resource == "deployments/scale";
        if !is_ours || count <= (2 * before).max(4) {
            return Ok(());
        }
        let specs = self.server.objects(EHPAS);
        let spec = specs
            .iter()
            .find(|one| one["metadata"]["name"] == access.name);
        if spec.is_some_and(|one| count <= highest_floor(&one["spec"])) {
            return Ok(());
        }
        Err(format!(
            "step: {} from {before} to {count} by {}",
            access.name, entry.client
        ))
    }

    fn check_writer(&mut self, entry: &Entry) -> Result<(), String> {
        if !entry.client.starts_with("pod-") {
            return Ok(());
        }
        if entry.access.resource == "leases" {
            self.take(entry);
            return Ok(());
        }
        self.check_gate(entry)?;
        self.check_stale(entry)?;
        // Each event is an object of its own.
        if entry.access.resource == "events" {
            return Ok(());
        }
        // The lease may be one of the past.
        if entry.time <= self.restored + LEASE {
            return Ok(());
        }
        let is_status = entry.access.resource.ends_with("/status");
        // A status has no version as its condition, so requests from before may follow those of a new leader.
        if is_status && entry.sent <= self.term_since {
            return Ok(());
        }
        let object = entry.object();
        let last = self.writers.get(&object).cloned().unwrap_or_default();
        if last != Writer::default() && last == self.term && last.host != entry.client {
            return Err(format!(
                "one writer: {} has {} of {object} at {}, which the leader {} has written",
                entry.client, entry.access.verb, entry.time, last.host
            ));
        }
        let term = if entry.client == self.term.host {
            self.term.term
        } else {
            0
        };
        self.writers.insert(
            object,
            Writer {
                host: entry.client.clone(),
                term,
            },
        );
        Ok(())
    }

    fn check_gate(&self, entry: &Entry) -> Result<(), String> {
        let until = self.leases.get(&entry.client);
        let until = until.copied().unwrap_or(Timestamp::MIN);
        let is_review = entry.access.resource.ends_with("reviews");
        if self.leases.is_empty() || is_review || entry.sent <= until {
            return Ok(());
        }
        Err(format!(
            "gate: {} has sent {} of {} at {}, and its lease ended at {until}",
            entry.client,
            entry.access.verb,
            entry.object(),
            entry.sent
        ))
    }

    /// Notes the holder of the lease.
    fn take(&mut self, entry: &Entry) {
        let (lease, now) = (entry.written.as_ref(), entry.time);
        let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        let host = holder
            .and_then(|identity| identity.split('_').next())
            .unwrap_or_default();
        let until = if host == entry.client {
            entry.sent + WRITES
        } else {
            entry.sent
        };
        self.leases.insert(entry.client.clone(), until);
        if host != self.term.host {
            self.term_since = now;
            self.term = Writer {
                host: host.to_owned(),
                term: self.term.term + 1,
            };
        }
    }

    /// Notes that a host has no news of the cluster from now on, or has them again.
    pub(crate) fn stale_since(&mut self, host: &str, since: Option<Timestamp>) {
        match since {
            Some(since) => self.stale.insert(host.to_owned(), since),
            None => self.stale.remove(host),
        };
    }

    /// Notes that the connections of a host are silent from now on, until it starts again; connections that it opens
    /// are not.
    pub(crate) fn stranded_since(&mut self, host: &str, since: Option<Timestamp>) {
        match since {
            Some(since) => self.stranded.insert(host.to_owned(), since),
            None => self.stranded.remove(host),
        };
    }

    /// Notes that the metrics of an app, or of all, have no value from now on, or have one again.
    pub(crate) fn blind_since(&mut self, app: &str, since: Option<Timestamp>) {
        match since {
            Some(since) => self.blind.insert(app.to_owned(), since),
            None => self.blind.remove(app),
        };
    }

    /// Notes that nothing fails from now on.
    pub(crate) fn healed(&mut self, now: Timestamp) {
        self.calm = now + RELISTED;
    }

    fn is_blind(&self, app: &str, now: Timestamp) -> bool {
        let since = [app, ""].map(|name| self.blind.get(name));
        let mut since = since.into_iter().flatten();
        since.any(|since| now.duration_since(*since) > IN_FORCE)
    }

    pub(crate) fn backed_up(&mut self, now: Timestamp) {
        self.backed_up = now;
        self.risen_in_backup = self.risen.clone();
    }

    /// Notes a restore, which removes later writes.
    pub(crate) fn restored(&mut self, now: Timestamp) {
        self.restored = now;
        // Targets are those of the backup; metrics of all are as before.
        self.blind.retain(|app, _| app.is_empty());
        self.counts.clear();
        self.written.clear();
        self.writers.clear();
        // Pods that were not ready in the backup become ready again.
        self.risen = self.risen_in_backup.clone();
        let since = self.backed_up - YOUNG;
        let risen = self.risen.values_mut().filter(|risen| **risen > since);
        risen.for_each(|risen| *risen = now);
    }

    fn check_stale(&self, entry: &Entry) -> Result<(), String> {
        let scales = ["deployments/scale", "horizontalpodautoscalers"];
        let since = self.stale.get(&entry.client);
        match since.filter(|since| entry.sent > **since + STALE) {
            Some(since) if scales.contains(&&*entry.access.resource) => Err(format!(
                "stale: {} has no news since {since}, and has sent {} of {} at {}",
                entry.client,
                entry.access.verb,
                entry.object(),
                entry.sent
            )),
            _ => Ok(()),
        }
    }

    fn check_counts(&mut self, now: Timestamp) -> Result<(), String> {
        let autoscalers = self.server.objects(EHPAS);
        for deployment in self.server.objects("deployments.apps") {
            let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
            let count = deployment["spec"]["replicas"].as_u64().unwrap_or_default();
            let uid = &deployment["metadata"]["uid"];
            let before = self
                .counts
                .insert(name.to_owned(), (uid.clone(), count))
                .filter(|(before, _)| before == uid)
                .map_or(count, |(_, count)| count);
            let Some(autoscaler) = autoscalers
                .iter()
                .find(|one| one["metadata"]["name"] == name)
            else {
                continue;
            };
            self.note_allowed(name, &autoscaler["spec"], now);
            self.check_minimum(name, count, &autoscaler["spec"], now)?;
            if count > before {
                self.risen.insert(name.to_owned(), now);
            }
            if before != count && !self.by_hand.contains(name) {
                let change = format!("{name} from {before} to {count}");
                self.check_change(name, (before, count), &autoscaler["spec"], now)
                    .map_err(|law| format!("{law}: {change}"))?;
            }
        }
        Ok(())
    }

    fn check_minimum(
        &mut self,
        name: &str,
        count: u64,
        spec: &Value,
        now: Timestamp,
    ) -> Result<(), String> {
        let allowed = self.allowed(name, spec, now).into_iter();
        let least = allowed
            .map(|one| if one.acts { one.least } else { 0 })
            .min();
        if count == 0 || Some(count) >= least {
            self.below.remove(name);
            return Ok(());
        }
        let since = *self.below.entry(name.to_owned()).or_insert(now);
        if now.duration_since(since.max(self.calm)) > RAISED {
            return Err(format!("minimum: {name} has {count} since {since}"));
        }
        Ok(())
    }

    fn note_allowed(&mut self, name: &str, spec: &Value, now: Timestamp) {
        let bound = |field: &str| spec[field].as_u64();
        let known = self.allowed.entry(name.to_owned()).or_default();
        // With an invalid spec the last valid one stays in force.
        if let (Some(least), Some(most)) = (bound("minReplicas"), bound("maxReplicas")) {
            let acts = spec["scaleStrategy"] != "Preview" || spec["specificReplicas"].is_u64();
            let allowed = Allowed { least, most, acts };
            if known.last().is_none_or(|(_, last)| *last != allowed) {
                known.push((now, allowed));
            }
        }
        // A process without news does not know the edits since then, even if an invalid one has followed them, nor the
        // edits that were not in force yet.
        let silent = self.stale.values().map(|since| *since - IN_FORCE);
        let restored = Some(self.restored).filter(|at| now.duration_since(*at) < RELISTED);
        if let Some(no_news) = silent.chain(restored).min() {
            let unknown = known.iter_mut().filter(|(since, _)| *since >= no_news);
            unknown.for_each(|(since, _)| *since = now);
        }
    }

    /// The limits of the last seconds; the last one is in force. A child that comes back with a backup scales until it
    /// is seen and deleted again, so limits from shortly before the backup count until everything is listed.
    fn allowed(&self, name: &str, spec: &Value, now: Timestamp) -> Vec<Allowed> {
        let has_child = spec["mode"] == "Delegated";
        let since = if has_child && now.duration_since(self.restored) < RELISTED {
            self.backed_up
        } else {
            now
        };
        let all = self.allowed.get(name).into_iter().flatten();
        let mut ends = all.clone().skip(1).map(|(since, _)| *since);
        let recent = all.filter(|_| ends.next().is_none_or(|end| end > since - IN_FORCE));
        recent.map(|(_, allowed)| *allowed).collect()
    }

    fn check_change(
        &self,
        name: &str,
        (before, count): (u64, u64),
        spec: &Value,
        now: Timestamp,
    ) -> Result<(), String> {
        let allowed = self.allowed(name, spec, now);
        let acting: Vec<_> = allowed.iter().filter(|one| one.acts).collect();
        let (Some(min), Some(max)) = (
            acting.iter().map(|one| one.least).min(),
            acting.iter().map(|one| one.most).max(),
        ) else {
            return Err("preview".to_owned());
        };
        if count < min.min(before) || count > max.max(before) {
            return Err(format!("bounds {min} to {max}"));
        }
        let floors = acting.iter().map(|one| one.least);
        let highest = floors.max().max(Some(highest_floor(spec)));
        let most = acting.iter().map(|one| one.most).min();
        let is_unforced = Some(count) > highest && Some(before) <= most;
        // Other processes may act by their own knowledge.
        let is_measured_outside = spec["metrics"][0]["type"] == "External";
        let is_blind = !is_measured_outside && self.is_blind(name, now);
        if spec["mode"] == "Direct" && is_blind && is_unforced {
            return Err("blind".to_owned());
        }
        if count > before {
            return Ok(());
        }
        // The smallest of the last seconds, because a decrease may follow a new bound.
        let max = most.unwrap_or_default();
        let floor = floor(spec, now).min(max).min(before);
        if count < floor {
            return Err(format!("floor {floor}"));
        }
        let needed = needed(self.load.least_between(name, now - MEMORY, now)).min(max);
        if count < needed && !self.has_new_pods(name, now) {
            return Err(format!("no dip below {needed}"));
        }
        Ok(())
    }

    /// Returns whether the HPA algorithm may leave pods of a Deployment out of a count. For a leader whose connections
    /// are silent, the pods that were new at that time are still new: its copies are not too old yet.
    fn has_new_pods(&self, name: &str, now: Timestamp) -> bool {
        let Some(risen) = self.risen.get(name) else {
            return false;
        };
        let silent = self.stranded.get(&self.term.host);
        let silent = silent.filter(|since| now.duration_since(**since) < STALE);
        let were_new = |known: &Timestamp| {
            let age = known.duration_since(*risen);
            !age.is_negative() && age < YOUNG
        };
        silent.into_iter().chain([&now]).any(were_new)
    }
}

/// Returns the smallest number of pods for a load that is enough within the tolerance of a tenth, of a utilization in
/// whole percents.
pub(crate) const fn needed(milli: u64) -> u64 {
    (100 * milli).div_ceil(112 * PER_POD)
}

/// Returns whether a load asks for no other count: its utilization in whole percents is within the tolerance of a
/// tenth.
pub(crate) fn fits(count: u64, milli: u64) -> bool {
    let percent = 100 * milli / (count * PER_POD * 2).max(1);
    (45..=55).contains(&percent)
}

/// Returns the highest floor that the windows of a spec or `minReplicas` ask for.
fn highest_floor(spec: &Value) -> u64 {
    let windows = spec["crons"].as_array().into_iter().flatten();
    let floors = windows.map(|window| &window["targetReplicas"]);
    let floors = floors.chain([&spec["minReplicas"]]);
    floors.filter_map(Value::as_u64).max().unwrap_or_default()
}

/// Returns the floor of the windows that are open, and stay open for some seconds, because clocks differ. Each opens at
/// the minutes `a/b` and closes at `c/b` of an hour, or is always open; others are not judged here.
fn floor(spec: &Value, now: Timestamp) -> u64 {
    let is_open = |now: Timestamp, cron: &Value| {
        let phase = |field: &str| {
            let minute = cron[field].as_str()?.split(' ').next()?;
            let (first, step) = minute.split_once('/')?;
            Some((
                first.split('-').next()?.parse::<i64>().ok()?,
                step.parse::<i64>().ok()?,
            ))
        };
        let Some(((start, step), (end, _))) = phase("start").zip(phase("end")) else {
            return cron["start"] == "* * * * *";
        };
        let minute = now.as_second() / 60 % step.max(1);
        if start < end {
            (start..end).contains(&minute)
        } else {
            minute >= start || minute < end
        }
    };
    let margin = SignedDuration::from_secs(10);
    let crons = spec["crons"].as_array().into_iter().flatten();
    let open = crons.filter(|cron| {
        is_open(now, cron) && is_open(now + margin, cron) && is_open(now - margin, cron)
    });
    open.filter_map(|cron| cron["targetReplicas"].as_u64())
        .max()
        .unwrap_or_default()
}
