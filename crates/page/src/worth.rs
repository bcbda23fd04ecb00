//! The benefit of Foretide compared with a plain HPA: the back-test's simulation of that HPA over the recorded demand,
//! and the recorded replicas, scored alike.
//!
//! ```text
//! recorded minutes --demand-------> sim::Run of sim::plain --> Score --+
//!                  --what served----------------------------> Score --+--> Worth
//! ```
//!
//! An autoscaler is computed on request or by a background task, never in a sync, and its result is kept for a while.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    iter,
    sync::Arc,
};

use foretide_domain::{
    Replicas,
    lead_time::LeadTime,
    sim::{self, Environment, Load, MINUTE, Minute, RecordedMetric, Recording, Run, Score},
    words::grouped,
    workload::{Strategy, Workload},
};
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::{
    Page, ViewError, Visible,
    api::{ObjectKey, Span, Worth, WorthOf, WorthScore},
    at,
    block::Column,
    record::{LastDecision, Latest, Recorded},
    rows::Rows,
};

/// Largest age of a result that is asked for, and of one that is part of a sum.
const FRESH: SignedDuration = SignedDuration::from_mins(10);
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// Minutes for which Foretide must have scaled a workload before they are compared: as in a back-test.
const LEAD_IN: i64 = 30;
/// The fewest minutes that are compared.
const LEAST: u32 = 60;
/// The fewest compared minutes after which a plain HPA may be called enough: a day.
const LEAST_OF_ENOUGH: u32 = 24 * 60;
/// The part of the minutes by which a plain HPA may be short for longer and still be enough: a minute and a half a day.
const NEGLIGIBLE: f64 = 0.001;
/// The most autoscalers that are listed one by one.
const LISTED: usize = 200;

/// The results by autoscaler.
#[derive(Debug, Default)]
pub struct WorthTable(Mutex<HashMap<ObjectKey, Entry>>);

#[derive(Clone, Debug)]
struct Entry {
    computed: Timestamp,
    outcome: Result<Compared, String>,
    start_up: SignedDuration,
    is_fleet: bool,
}

/// Both sides over the same minutes.
#[derive(Clone, Debug, PartialEq)]
struct Compared {
    span: Span,
    actual: Score,
    plain: Score,
}

impl Page {
    /// The benefit of Foretide for one autoscaler compared with a plain HPA, computed if it is not known or old.
    ///
    /// # Errors
    /// [`ViewError::NotFound`].
    pub fn worth(&self, key: &ObjectKey, visible: &Visible) -> Result<Worth, ViewError> {
        let (recorded, now) = (self.recorded(key, visible)?, self.host.now());
        let known = self.worth.lock(|table| table.get(key).cloned());
        Ok(match known.filter(|known| known.is_younger(FRESH, now)) {
            Some(fresh) => fresh.worth(),
            None => self.worth.compute(&recorded, now).worth(),
        })
    }

    /// The summed benefit of Foretide for all autoscalers that the reader may see, as far as it is known.
    pub fn worth_of_all(&self, visible: &Visible) -> Worth {
        let all = self.log.all(visible);
        let known = self.worth.known(&all);
        let compared: Vec<_> = known
            .iter()
            .filter_map(|(key, entry)| Some((key, entry.outcome.as_ref().ok()?)))
            .collect();
        let (mut actual, mut plain) = (Score::default(), Score::default());
        for (_, both) in &compared {
            add(&mut actual, &both.actual);
            add(&mut plain, &both.plain);
        }
        let spans = compared.iter().map(|(_, both)| both.span);
        let mut each: Vec<_> = compared
            .iter()
            .map(|(key, both)| both.listed(key))
            .collect();
        each.sort_by_key(|one| (Reverse(one.actual.short_minutes), one.autoscaler.clone()));
        each.truncate(LISTED);
        let oldest = known.values().map(|it| it.computed).min();
        let has_fleet = known.values().any(|it| it.is_fleet && it.outcome.is_ok());
        Worth {
            autoscalers: compared.len(),
            left_out: all.len() - compared.len(),
            span: spans.reduce(|one, other| Span {
                from: one.from.min(other.from),
                until: one.until.max(other.until),
            }),
            actual: score(&actual),
            plain: score(&plain),
            verdict: if compared.is_empty() {
                "no autoscaler has enough recorded minutes that Foretide scaled it in".to_owned()
            } else {
                let enough = compared.iter().filter(|(_, both)| both.is_plain_enough());
                let sentence = actual.verdict(&plain);
                match enough.count() {
                    0 => sentence,
                    some => format!(
                        "{sentence}; a plain HPA is enough for {some} of {}",
                        compared.len()
                    ),
                }
            },
            assumptions: assumptions(None, has_fleet),
            computed: oldest.map(|computed| computed.to_string()),
            each,
        }
    }

    /// Computes the worth of one autoscaler whose figures are missing or older than an hour, for
    /// [`Self::worth_of_all`]; returns whether there was one.
    pub fn refresh_worth(&self) -> bool {
        let now = self.host.now();
        let Some(key) = self.worth.next(&self.log.all(&Visible::All), now) else {
            return false;
        };
        if let Some(recorded) = self.log.recorded(&key) {
            self.worth.compute(&recorded, now);
        }
        true
    }
}

// === impl WorthTable ===

impl WorthTable {
    /// Computes and keeps the result of one autoscaler.
    fn compute(&self, recorded: &Recorded, now: Timestamp) -> Entry {
        // Computed without the lock: days are simulated, and other readers would wait. Two readers may compute the
        // same.
        let entry = Entry::of(recorded, now);
        self.lock(|table| table.insert(recorded.latest.key.clone(), entry.clone()));
        entry
    }

    /// The results that are known.
    fn known(&self, all: &[Arc<Latest>]) -> BTreeMap<ObjectKey, Entry> {
        self.lock(|table| {
            all.iter()
                .filter_map(|latest| Some((latest.key.clone(), table.get(&latest.key)?.clone())))
                .collect()
        })
    }

    /// An autoscaler whose result is missing or too old, if there is one.
    fn next(&self, all: &[Arc<Latest>], now: Timestamp) -> Option<ObjectKey> {
        self.lock(|table| {
            let known: HashSet<_> = all.iter().map(|latest| &latest.key).collect();
            // Otherwise the results of removed autoscalers would be kept for as long as the process runs.
            table.retain(|key, _| known.contains(key));
            known
                .into_iter()
                .find(|key| !table.get(*key).is_some_and(|it| it.is_younger(KEPT, now)))
                .cloned()
        })
    }

    fn lock<T>(&self, read: impl FnOnce(&mut HashMap<ObjectKey, Entry>) -> T) -> T {
        read(&mut self.0.lock())
    }
}

// === impl Entry ===

impl Entry {
    fn of(recorded: &Recorded, now: Timestamp) -> Self {
        let latest = &recorded.latest;
        let decided = latest.decided.as_deref();
        let start_up = decided.map_or(foretide_domain::lead_time::DEFAULT, |decided| {
            start_up(latest, decided)
        });
        let rows = recorded.minutes.rows(i64::MIN, i64::MAX);
        let outcome = decided.ok_or_else(|| "nothing has been decided yet".to_owned());
        Self {
            computed: now,
            outcome: outcome.and_then(|decided| compare(&rows, decided, start_up)),
            start_up,
            is_fleet: latest.status.fleet.clusters.is_some(),
        }
    }

    fn is_younger(&self, age: SignedDuration, now: Timestamp) -> bool {
        // The absolute age: after the clock was set back, a result from its future is old, too.
        now.duration_since(self.computed).abs() < age
    }

    fn worth(&self) -> Worth {
        let assumptions = assumptions(Some(self.start_up), self.is_fleet);
        let computed = Some(self.computed.to_string());
        match &self.outcome {
            Err(reason) => Worth {
                left_out: 1,
                verdict: reason.clone(),
                assumptions,
                computed,
                ..Worth::default()
            },
            Ok(both) => Worth {
                autoscalers: 1,
                span: Some(both.span),
                actual: score(&both.actual),
                plain: score(&both.plain),
                verdict: both.verdict(),
                assumptions,
                computed,
                ..Worth::default()
            },
        }
    }
}

// === impl Compared ===

impl Compared {
    fn listed(&self, key: &ObjectKey) -> WorthOf {
        WorthOf {
            autoscaler: key.clone(),
            span: self.span,
            actual: score(&self.actual),
            plain: score(&self.plain),
            verdict: self.verdict(),
        }
    }

    /// The difference as a sentence, and whether a plain HPA is enough.
    fn verdict(&self) -> String {
        let sentence = self.actual.verdict(&self.plain);
        if self.is_plain_enough() {
            format!("{sentence}; a plain HPA is enough here")
        } else {
            sentence
        }
    }

    /// Returns whether a plain HPA is hardly ever short for longer, and costs no more, over a day at least.
    fn is_plain_enough(&self) -> bool {
        let (actual, plain) = (&self.actual, &self.plain);
        let longer = plain.under.saturating_sub(actual.under);
        plain.minutes >= LEAST_OF_ENOUGH
            && f64::from(longer) <= NEGLIGIBLE * f64::from(plain.minutes)
            && plain.more_percent(actual) <= 1.0
    }
}

/// Start-up time of a replica: as measured, else as the spec says, else the default.
fn start_up(latest: &Latest, decided: &LastDecision) -> SignedDuration {
    let prediction = latest.autoscaler.spec().prediction.as_ref();
    let seconds = prediction.and_then(|prediction| prediction.lead_time_seconds);
    let written = seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
    LeadTime::of(None, decided.start_up.or(written)).span
}

/// Scores the recorded replicas and a plain HPA over the recorded demand: the minutes in which Foretide scaled the
/// workload, after half an hour of them.
///
/// # Errors
/// The reason for which they cannot be compared, as a sentence.
fn compare(
    rows: &Rows,
    decided: &LastDecision,
    start_up: SignedDuration,
) -> Result<Compared, String> {
    let (Some(first), Some(last)) = (rows.times.first(), rows.times.last()) else {
        return Err("no minute is recorded yet".to_owned());
    };
    let Some(template) = decided.template.clone() else {
        return Err("it is not known what its pods request".to_owned());
    };
    let mut workload = Workload::clone(&decided.workload);
    let metrics = recordings(rows, &mut workload);
    if metrics.is_empty() {
        return Err("no demand is recorded that a replica has a target for".to_owned());
    }
    let environment = Environment {
        metrics,
        template,
        start_up,
        begin: at(*first),
    };
    let mut run = Run::new(&environment, sim::plain(workload), Vec::new());
    let mut recorded = RecordedMinutes::new(rows);
    let (mut actual, mut plain) = (Score::default(), Score::default());
    let mut span = None;
    // Minutes without a row are simulated too: time passes for a plain HPA as well.
    for begin in (*first..=*last).step_by(60) {
        let (simulated, _) = run.minute();
        let was = recorded.minute(begin, simulated);
        if recorded.is_compared(begin) {
            // A minute whose demand one side does not know counts as unknown on both, so that both have the same
            // minutes.
            let was = was.filter(|was| was.load.is_some() && simulated.load.is_some());
            let load = was.and(simulated.load);
            plain.add_minute(&Minute { load, ..simulated });
            actual.add_minute(&was.unwrap_or(Minute { load, ..simulated }));
            let until = begin + MINUTE.as_secs();
            span.get_or_insert(Span { from: begin, until }).until = until;
        }
    }
    match span.filter(|_| actual.minutes >= LEAST) {
        Some(span) => Ok(Compared {
            span,
            actual,
            plain,
        }),
        None => Err(too_few(rows.times.len(), actual.minutes, decided)),
    }
}

/// The reason for which nothing is compared.
fn too_few(recorded: usize, compared: u32, decided: &LastDecision) -> String {
    if decided.workload.strategy == Strategy::Preview {
        return "with scaleStrategy Preview, what Foretide decides is not what scales the workload, so nothing is compared".to_owned();
    }
    format!(
        "of {} recorded minutes {compared} can be compared, and {LEAST} are needed: those with a known demand, after half an hour \
         in which Foretide scaled the workload",
        grouped(recorded as u64)
    )
}

/// The recorded demand of the metrics that have a target per replica; the workload keeps only those.
fn recordings(rows: &Rows, workload: &mut Workload) -> Vec<RecordedMetric> {
    let mut recorded = Vec::new();
    workload.metrics.retain(|metric| {
        let name = metric.identifier();
        let mut samples = Vec::new();
        for column in rows.metrics.iter().filter(|it| *it.name == *name) {
            for (begin, value) in iter::zip(&rows.times, column.demand()) {
                // The demand of a minute is known at its end.
                let at = at(begin + MINUTE.as_secs());
                samples.extend(value.map(|value| Sample {
                    at,
                    value: value.into(),
                }));
            }
        }
        if samples.is_empty() {
            return false;
        }
        recorded.push(RecordedMetric {
            metric: metric.clone(),
            recording: Recording::new(samples),
        });
        true
    });
    recorded
}

/// The recorded minutes by their beginning, read in the order of time.
struct RecordedMinutes {
    minutes: HashMap<i64, RecordedMinute>,
    before: Option<u32>,
    /// The first minute of those in a row in which Foretide scaled the workload.
    acts_since: Option<i64>,
}

#[derive(Clone, Copy)]
struct RecordedMinute {
    asked: u32,
    ready: u32,
    acted: bool,
    /// Replicas that the demand needs at the target of that minute.
    needed: Option<f32>,
}

// === impl RecordedMinutes ===

impl RecordedMinutes {
    fn new(rows: &Rows) -> Self {
        let counts = iter::zip(rows.counts(Column::Current), rows.counts(Column::Ready));
        let facts = iter::zip(rows.counts(Column::Acted), rows.needed());
        let mut minutes = HashMap::new();
        for (at, (counts, (acted, needed))) in iter::zip(&rows.times, iter::zip(counts, facts)) {
            if let (Some(asked), Some(ready)) = counts {
                let minute = RecordedMinute {
                    asked,
                    ready,
                    acted: acted == Some(1),
                    needed,
                };
                minutes.insert(*at, minute);
            }
        }
        Self {
            minutes,
            before: None,
            acts_since: None,
        }
    }

    /// The recorded result of a minute, if there is one; `simulated` provides the fields that are not recorded.
    fn minute(&mut self, begin: i64, simulated: Minute) -> Option<Minute> {
        let minute = *self.minutes.get(&begin)?;
        let before = self.before.replace(minute.asked);
        let since = self.acts_since.unwrap_or(begin);
        self.acts_since = minute.acted.then_some(since);
        Some(Minute {
            load: minute
                .needed
                .map(|needed| load(needed.into(), simulated.load)),
            asked: Replicas::new(minute.asked),
            ready: Replicas::new(minute.ready),
            changed: before.is_some_and(|before| before != minute.asked),
            forecast_replicas: None,
            ..simulated
        })
    }

    /// Returns whether Foretide has scaled the workload for half an hour before this minute.
    fn is_compared(&self, begin: i64) -> bool {
        self.acts_since
            .is_some_and(|since| begin >= since + LEAD_IN * MINUTE.as_secs())
    }
}

/// A load that needs this many replicas: the simulated one if it needs the same, because recorded amounts have only
/// seven digits.
fn load(needed: f64, simulated: Option<Load>) -> Load {
    match simulated {
        Some(same) if (same.replicas() - needed).abs() <= 1e-5 * needed => same,
        _ => Load {
            track: 0,
            demand: needed,
            target: 1.0,
        },
    }
}

fn add(sum: &mut Score, one: &Score) {
    sum.minutes += one.minutes;
    sum.unknown += one.unknown;
    sum.under += one.under;
    sum.missing += one.missing;
    sum.needed += one.needed;
    sum.replica_minutes += one.replica_minutes;
    sum.actions += one.actions;
}

fn score(score: &Score) -> WorthScore {
    WorthScore {
        minutes: score.minutes.into(),
        short_minutes: score.under.into(),
        replica_hours: score.replica_hours(),
        actions: score.actions.into(),
    }
}

fn assumptions(start_up: Option<SignedDuration>, fleet: bool) -> Vec<String> {
    let starts = match start_up {
        Some(start_up) => {
            format!("a pod of the plain HPA serves {start_up:#} after it is requested")
        }
        None => "a pod of a plain HPA serves after the measured start-up time of its workload"
            .to_owned(),
    };
    let same = [
        "the plain HPA has the metrics, targets and bounds of now all the time",
        "the demand is the same, however many pods serve, and they share it evenly",
        "only minutes with a recorded demand count in which Foretide scaled the workload (not in Preview, in a conflict or while \
         paused), but for the first half hour of each such time",
        "pods that crashed or waited for a node count as they were; the simulated ones always start",
    ];
    let of_fleet = "a fleet is compared with one HPA in one cluster that has room for all its pods";
    let same = same.into_iter().chain(fleet.then_some(of_fleet));
    iter::once(starts).chain(same.map(str::to_owned)).collect()
}
