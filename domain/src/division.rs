//! Division of a metric's total among pods: the work of a load divides, the memory that each pod keeps does not.
//!
//! A forecast of a total is divided by what one pod should carry. Of a total that grows with the pods, each pod that is
//! added raises the forecast, which adds the next one. [`Division`] tells the two apart by how the total moves when
//! pods come and go:
//!
//! ```text
//! pods   ____|‾‾‾‾    total  ________   it divides      total  ____|‾‾‾‾   it grows with the pods
//!  change of the number of pods: share = change of ln(total) / change of ln(pods), 0 or 1
//! ```
//!
//! Each change of the number of pods is a vote. A load that rises while pods are added looks like growth, so its trend
//! before the change is subtracted. When pods go, the load has fallen before, so these votes count more.

use jiff::{SignedDuration, Timestamp};

use super::demand::{self, is_available};
use super::hpa::MetricSpec;
use super::observation::{Observation, Pod};
use super::remembered::Remembered;

/// Votes from which a total counts as growing with the pods: more than a morning gives in which the load rises with
/// the pods.
const SETTLED: i8 = 6;
/// The fewest votes: a total that has divided for long is not doubted after a morning.
const LEAST: i8 = -2 * SETTLED;
/// Votes of a change to more pods, during which the load may rise too.
const UP: i8 = 1;
/// Votes of a change to fewer pods, before which the load has fallen.
const DOWN: i8 = 3;
/// Time after a change of the number of pods in which the total is not compared: readings are means over up to a
/// minute.
const UNSETTLED: SignedDuration = SignedDuration::from_secs(60);
/// The shortest time that a mean of totals covers.
const MEAN: SignedDuration = SignedDuration::from_mins(2);
/// The smallest change of the logarithm of a number of pods that is a change: one pod of 25.
const LEAST_CHANGE: f64 = 0.04;
/// The longest time between two totals that are compared, because loads change; also the longest wait for a total to
/// settle.
const COMPARABLE: SignedDuration = SignedDuration::from_mins(10);
/// Time for which a total over time still counts pods that have ended: Prometheus keeps the last sample of a series
/// whose samples have timestamps, such as the kubelet's, for five minutes, and no rate covers more.
const COUNTED: SignedDuration = SignedDuration::from_mins(5);
/// Time for which a surplus must be seen to count: decisions are made on copies of the pods that may be a minute old,
/// and on the scale before a write.
const CERTAIN: SignedDuration = SignedDuration::from_secs(90);
/// The share up to which a total divides.
const DIVIDES: f64 = 0.3;
/// The share from which a total grows with the pods.
const GROWS: f64 = 0.65;
/// Change of the logarithm of a total, beyond that of the pods, from which the load has changed: 15 %, more than noise.
const OF_THE_LOAD: f64 = 0.14;

/// Estimate for one metric: its total divides among pods, or grows with them.
///
/// ```
/// use foretide_domain::division::Division;
/// use foretide_domain::hpa::{MetricSpec, Target};
///
/// let of = |name: &str| Division::presumed(&MetricSpec::Resource {
///     name: name.into(),
///     target: Target::Utilization(50),
/// });
/// assert!(of("cpu").divides() && !of("memory").divides());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Division {
    /// True if the total grows with the pods.
    grows: bool,
    /// Votes for growth, less those for division.
    votes: i8,
    /// The total at the present number of pods.
    plateau: Option<Plateau>,
    /// The total at the number of pods before.
    before: Option<Plateau>,
}

/// A time in which more pods ran than the scale asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surplus {
    /// Time at which the surplus was seen first.
    pub since: Timestamp,
    /// Time at which the surplus was seen last.
    pub last: Timestamp,
}

/// The total while the number of pods stayed about the same.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plateau {
    pods: f64,
    since: Timestamp,
    /// The mean of the first readings.
    first: Level,
    /// The moving mean of the last readings.
    last: Level,
    /// True if the first mean is complete.
    measured: bool,
}

/// A mean of logarithms of totals.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    mean: f64,
    readings: u32,
    at: Timestamp,
}

// === impl Division ===

impl Division {
    /// Assumption about a metric that was never observed: cpu divides, memory and other resources grow with the pods,
    /// and any other metric divides until it is seen to grow.
    pub fn presumed(metric: &MetricSpec) -> Self {
        let votes = match metric.resource() {
            Some(("cpu", _)) => LEAST,
            Some(_) => return Self::stored(true),
            None => UP,
        };
        Self {
            votes,
            ..Self::default()
        }
    }

    /// The estimate that was settled before the votes were lost.
    pub fn stored(grows: bool) -> Self {
        Self {
            grows,
            votes: if grows { SETTLED } else { 0 },
            ..Self::default()
        }
    }

    /// Returns true if a forecast of the total may be divided by the target of one pod.
    pub fn divides(&self) -> bool {
        !self.grows
    }

    /// Returns true if the number of pods has changed, or changes now, and the effect on the total is not known yet.
    ///
    /// False where the total is assumed or settled to divide, and after ten minutes.
    pub fn is_settling(
        &self,
        metric: &MetricSpec,
        observation: &Observation,
        now: Timestamp,
    ) -> bool {
        let votes = self.votes.min(Self::presumed(metric).votes);
        votes > -SETTLED
            && self.plateau.is_some_and(|plateau| {
                let has_changed = self.before.is_some() && !plateau.measured;
                has_changed && now.duration_since(plateau.since) < COMPARABLE
                    || observation.pods.iter().any(|pod| is_starting(pod, now))
            })
    }

    /// The estimate after one more observation; `index` is the position of the metric among the readings.
    ///
    /// Nothing changes while pods come or go, and while the total is not known.
    #[must_use]
    pub fn observed(
        mut self,
        metric: &MetricSpec,
        index: usize,
        observation: &Observation,
        now: Timestamp,
    ) -> Self {
        let reading = observation
            .readings
            .get(index)
            .and_then(|reading| reading.as_ref().ok());
        let total =
            reading.and_then(|reading| demand::total(metric, reading, &observation.pods, now));
        let (Some(total), Some(pods)) = (
            total.filter(|total| *total > 0.0),
            settled_pods(observation, now),
        ) else {
            return self;
        };
        let total = total.ln();
        match &mut self.plateau {
            Some(plateau) if plateau.is_of(pods) => {
                if plateau.read(total, now) {
                    self.vote();
                }
            }
            other => {
                let ended = other.replace(Plateau::new(pods, now));
                self.before = ended.filter(|plateau| plateau.measured).or(self.before);
            }
        }
        self
    }

    fn vote(&mut self) {
        let Some((before, after)) = self.before.zip(self.plateau) else {
            return;
        };
        let Some(share) = after.share_since(&before) else {
            return;
        };
        let weight = if after.pods < before.pods { DOWN } else { UP };
        let beyond = (share - 1.0) * (after.pods / before.pods).ln().abs();
        if share <= DIVIDES || beyond > OF_THE_LOAD {
            self.votes = (self.votes - weight).max(LEAST);
        } else if share >= GROWS {
            self.votes = (self.votes + weight).min(SETTLED);
        }
        // Between zero and `SETTLED` votes the answer stays as it is.
        if self.votes >= SETTLED {
            self.grows = true;
        } else if self.votes <= 0 {
            self.grows = false;
        }
    }

    /// Applies `change` to every remembered time.
    pub(super) fn for_each_time(&mut self, change: impl Fn(Remembered<'_>)) {
        for Plateau {
            pods: _,
            since,
            first,
            last,
            measured: _,
        } in [&mut self.plateau, &mut self.before].into_iter().flatten()
        {
            for at in [since, &mut first.at, &mut last.at] {
                change(Remembered::Since(at));
            }
        }
    }
}

// === impl Plateau ===

impl Plateau {
    fn new(pods: f64, since: Timestamp) -> Self {
        let level = Level {
            mean: 0.0,
            readings: 0,
            at: since,
        };
        Self {
            pods,
            since,
            first: level,
            last: level,
            measured: false,
        }
    }

    fn is_of(&self, pods: f64) -> bool {
        (pods / self.pods).ln().abs() < LEAST_CHANGE
    }

    /// Adds a reading; returns true if it completes the first mean.
    fn read(&mut self, total: f64, now: Timestamp) -> bool {
        let age = now.duration_since(self.since);
        if age < UNSETTLED {
            return false;
        }
        let recent = now.duration_since(self.last.at).as_secs_f64() / MEAN.as_secs_f64();
        self.last.add(total, recent.clamp(0.0, 1.0), now);
        if self.measured {
            return false;
        }
        let weight = f64::from(self.first.readings + 1).recip();
        self.first.add(total, weight, now);
        self.measured = self.first.readings > 1 && age >= UNSETTLED + MEAN;
        self.measured
    }

    /// Share of the change of the number of pods that appears in the total, beyond the earlier trend of the total;
    /// `None` if the two plateaus cannot be compared.
    fn share_since(&self, before: &Self) -> Option<f64> {
        let change = (self.pods / before.pods).ln();
        let between = self.first.at.duration_since(before.last.at);
        if !change.is_finite() || change.abs() < LEAST_CHANGE || between > COMPARABLE {
            return None;
        }
        let span = before.last.at.duration_since(before.first.at);
        let trend = before.last.mean - before.first.mean;
        // The trend is extrapolated for no longer than it was observed.
        let ahead = if span.is_positive() {
            (between.as_secs_f64() / span.as_secs_f64()).min(1.0)
        } else {
            0.0
        };
        Some((self.first.mean - before.last.mean - trend * ahead) / change)
    }
}

// === impl Level ===

impl Level {
    /// Adds a reading with a weight; the first reading is the whole mean.
    fn add(&mut self, total: f64, weight: f64, now: Timestamp) {
        let weight = if self.readings == 0 { 1.0 } else { weight };
        self.mean += (total - self.mean) * weight;
        self.readings = self.readings.saturating_add(1);
        self.at = now;
    }
}

/// The number of pods that serve, if no other pods are on their way or leaving.
fn settled_pods(observation: &Observation, now: Timestamp) -> Option<f64> {
    let pods = &observation.pods;
    let serving = pods.iter().filter(|pod| is_available(pod)).count();
    let serving = u32::try_from(serving).ok().filter(|count| *count > 0)?;
    let is_known = observation.unseen.get() == 0 && observation.undelivered.get() == 0;
    let is_moving = pods.iter().any(|pod| pod.deleting || is_starting(pod, now));
    (is_known && !is_moving && !has_surplus(observation)).then_some(f64::from(serving))
}

/// Returns true if a pod does not serve yet. A pod that has not become ready for ten minutes is broken.
fn is_starting(pod: &Pod, now: Timestamp) -> bool {
    let is_young = pod
        .created
        .is_some_and(|created| now.duration_since(created) < COMPARABLE);
    is_young && !pod.has_ended() && !pod.deleting && !is_available(pod)
}

/// The surplus of pods after one more observation, as long as totals count it.
///
/// A surplus that ends before it is certain was none: the copies of the pods and of the scale are of different moments.
pub(super) fn surplus(
    observation: &Observation,
    before: Option<Surplus>,
    now: Timestamp,
) -> Option<Surplus> {
    if has_surplus(observation) {
        let since = before.map_or(now, |before| before.since);
        return Some(Surplus { since, last: now });
    }
    before.filter(|seen| {
        seen.last.duration_since(seen.since) >= CERTAIN && now.duration_since(seen.last) < COUNTED
    })
}

/// Returns true if more pods run than the scale asks for, as during a rolling update. Pods that are being deleted do
/// not count: after each scale-down there are some.
pub(super) fn has_surplus(observation: &Observation) -> bool {
    let running = observation.pods.iter().filter(|pod| pod.runs()).count();
    let asked = observation.scale.spec.get();
    u32::try_from(running)
        .unwrap_or(u32::MAX)
        .max(observation.owned.get())
        > asked
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observation::examples::{self, busy, memory};
    use crate::observation::{Measured, PodSample, Status};

    const START: Timestamp = Timestamp::constant(1_767_225_600, 0);
    const SYNC: SignedDuration = SignedDuration::from_secs(15);

    fn pod(index: u32, deleting: bool) -> Arc<Pod> {
        Arc::new(Pod {
            deleting,
            ..examples::pod(&format!("web-{index}"), START, Status::True)
        })
    }

    /// `pods` serving pods, as many as the scale asks for, with this total.
    fn seen(pods: u32, total: f64, at: Timestamp) -> Observation {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "thousandths of small numbers"
        )]
        let value = (total * 1e6 / f64::from(pods)) as i64;
        let sample = |index| PodSample {
            pod: format!("web-{index}").into(),
            value,
            at,
            window: SYNC,
        };
        let samples = Measured::Samples((0..pods).map(sample).collect());
        examples::observation(
            pods,
            (0..pods).map(|index| pod(index, false)).collect(),
            samples,
        )
    }

    /// The estimate after these numbers of pods, ten minutes each; `total` is a function of the pods and the minute.
    fn after(known: Division, counts: &[u32], total: impl Fn(f64, f64) -> f64) -> Division {
        let mut division = known;
        let mut now = START;
        for count in counts {
            for _ in 0..40 {
                let minute = now.duration_since(START).as_secs_f64() / 60.0;
                let observation = seen(*count, total(f64::from(*count), minute), now);
                division = division.observed(&busy(), 0, &observation, now);
                now += SYNC;
            }
        }
        division
    }

    const CLIMB: [u32; 9] = [10, 11, 12, 14, 16, 18, 20, 23, 26];
    /// Up and down again.
    const WAVE: [u32; 9] = [10, 12, 15, 12, 10, 12, 15, 12, 10];

    #[test]
    fn a_total_that_moves_with_the_pods_grows_with_them_and_any_other_divides() {
        type Total = fn(f64, f64) -> f64;
        fn noise(minute: f64) -> f64 {
            1.0 + 0.03 * (minute * 7.3).sin()
        }
        let table: [(&str, Total, bool); 7] = [
            ("a constant load", |_, _| 8.0, true),
            ("rises by a half in an hour", |_, t| 8.0 + t / 15.0, true),
            ("falls by a half in an hour", |_, t| 16.0 - t / 7.5, true),
            ("a third is of the pods", |pods, _| 8.0 + 0.25 * pods, true),
            ("moves by twice as much", |pods, _| pods * pods, true),
            ("each pod's", |pods, _| 0.8 * pods, false),
            ("each pod's, with noise", |pods, t| pods * noise(t), false),
        ];
        for (name, total, divides) in table {
            let found = after(Division::presumed(&busy()), &WAVE, total);
            assert_eq!(found.divides(), divides, "{name}: {found:?}");
        }
    }

    #[test]
    fn memory_has_to_be_seen_to_divide_and_a_load_that_was_seen_to_grow_too() {
        let presumed = Division::presumed(&memory());
        assert!(!after(presumed.clone(), &[10; 9], |_, _| 8.0).divides());
        for grows in [presumed, Division::stored(true)] {
            assert!(after(grows.clone(), &WAVE, |_, _| 8.0).divides());
            assert!(!after(grows, &WAVE, |pods, _| pods).divides());
        }
    }

    #[test]
    fn ups_alone_are_enough_and_each_must_have_settled() {
        let climbed = after(Division::presumed(&busy()), &CLIMB, |pods, _| pods);
        assert!(!climbed.divides());
        let now = START + SignedDuration::from_mins(90);
        let raised = climbed.observed(&busy(), 0, &seen(30, 30.0, now), now);
        assert!(raised.is_settling(&busy(), &seen(30, 30.0, now), now + SYNC));
        assert!(!raised.is_settling(&busy(), &seen(30, 30.0, now), now + COMPARABLE));
    }

    #[test]
    fn pods_beyond_the_scale_are_a_surplus_and_those_that_end_are_not() {
        let mut observation = seen(10, 8.0, START);
        observation.pods.push(pod(10, true));
        assert!(!has_surplus(&observation));
        assert_eq!(settled_pods(&observation, START), None);
        observation.pods.push(pod(11, false));
        assert!(has_surplus(&observation));
        let mut calm = seen(10, 8.0, START);
        assert_eq!(surplus(&calm, None, START), None);
        calm.owned = crate::Replicas::new(11);
        assert!(has_surplus(&calm), "one that is not selected");
        calm.owned = crate::Replicas::new(10);
        let after =
            |before, seconds| surplus(&calm, before, START + SignedDuration::from_secs(seconds));
        let first = surplus(&observation, None, START);
        assert_eq!(after(first, 15), None, "copies of different moments");
        let last = surplus(&observation, first, START + CERTAIN);
        assert_eq!([375, 390].map(|at| after(last, at)), [last, None]);
    }
}
