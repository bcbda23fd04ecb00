//! Time until added capacity serves: set in the spec, measured from the workload's pods, or a default.
//!
//! A pod counts once, the first time that it is observed ready; a pod of the same name that was created later is
//! another pod. A start of more than 20 minutes is not counted: such a pod more likely lost its readiness and regained
//! it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::observation::{Pod, Status};

/// The lead time where none is set and none was measured.
pub const DEFAULT: SignedDuration = SignedDuration::from_secs(120);
/// The shortest lead time that is measured.
const SHORTEST: SignedDuration = SignedDuration::from_secs(30);
/// The longest lead time that is measured.
const LONGEST: SignedDuration = SignedDuration::from_mins(20);
/// Largest difference between the clock of a node, which notes readiness, and that of the API server, which notes
/// creation.
const SKEW: SignedDuration = SignedDuration::from_mins(1);
/// Number of starts that are kept, the last ones.
const REMEMBERED: usize = 20;
/// The fewest starts that give a measurement.
const NEEDED: usize = 3;
/// Distance by which a measurement must be beyond the whole minute in use to change it.
const SLACK: SignedDuration = SignedDuration::from_secs(15);

/// The lead time in use, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadTime {
    /// Time until added capacity serves.
    pub span: SignedDuration,
    /// Origin of the span.
    pub origin: Origin,
}

words! {
    /// Origin of a lead time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Origin {
        /// Set by the user.
        Spec = "spec",
        /// The 90th percentile of the last starts of the workload's pods.
        Measured = "measured",
        /// [`DEFAULT`], where none is set and none was measured.
        Default = "default",
    }
}

/// A pod's name and creation time: a `StatefulSet` reuses the names of its pods.
type Identity = (Arc<str>, Option<Timestamp>);

/// The last starts of one workload's pods.
#[derive(Clone, Debug, Default)]
pub struct LeadTimes {
    took: VecDeque<SignedDuration>,
    counted: BTreeSet<Identity>,
    in_use: Option<SignedDuration>,
}

// === impl LeadTime ===

impl LeadTime {
    /// The span set in the spec, else the measured one, else [`DEFAULT`].
    ///
    /// A measured span is clamped to 30 s to 20 min and rounded up to whole minutes: a setting that changed with every
    /// pod would make the forecaster start learning again.
    ///
    /// ```
    /// use foretide_domain::lead_time::{LeadTime, Origin};
    /// use jiff::SignedDuration;
    ///
    /// let measured = Some(SignedDuration::from_secs(90));
    /// let lead_time = LeadTime::of(None, measured);
    /// assert_eq!(lead_time.span, SignedDuration::from_mins(2));
    /// assert_eq!(lead_time.origin, Origin::Measured);
    /// ```
    pub fn of(written: Option<SignedDuration>, measured: Option<SignedDuration>) -> Self {
        let (span, origin) = match (written, measured) {
            (Some(span), _) => (span, Origin::Spec),
            (None, Some(span)) => (whole_minutes(span), Origin::Measured),
            (None, None) => (DEFAULT, Origin::Default),
        };
        Self { span, origin }
    }
}

// === impl LeadTimes ===

impl LeadTimes {
    /// Records the starts among the workload's present pods, which are sorted by name.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use foretide_domain::lead_time::LeadTimes;
    /// use foretide_domain::observation::{Phase, Pod, Readiness, Status};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let created = Timestamp::UNIX_EPOCH;
    /// let ready_after = |name: &str, seconds: i64| {
    ///     let since = created + SignedDuration::from_secs(seconds);
    ///     Arc::new(Pod {
    ///         name: name.into(),
    ///         phase: Phase::Running,
    ///         deleting: false,
    ///         created: Some(created),
    ///         ready: Some(Readiness { status: Status::True, since }),
    ///         started: Some(created),
    ///         containers: Vec::new().into(),
    ///         pod_level_requests: None,
    ///     })
    /// };
    /// let mut starts = LeadTimes::default();
    /// starts.observe(&[ready_after("a", 40), ready_after("b", 50)]);
    /// assert_eq!(starts.measured(), None);
    /// // The 90th percentile of three starts is the longest one, here 95 s.
    /// starts.observe(&[ready_after("a", 40), ready_after("b", 50), ready_after("c", 95)]);
    /// assert_eq!(starts.measured(), Some(SignedDuration::from_mins(2)));
    /// ```
    pub fn observe(&mut self, pods: &[Arc<Pod>]) {
        // Pods that are gone never come back under the same creation time, so the set stays as small as the workload.
        self.counted.retain(|(name, created)| {
            pods.binary_search_by(|pod| pod.name.cmp(name))
                .ok()
                .and_then(|at| pods.get(at))
                .is_some_and(|pod| pod.created == *created)
        });
        let mut starts: Vec<(Timestamp, SignedDuration)> = Vec::new();
        for pod in pods {
            let Some(since) = ready_since(pod) else {
                continue;
            };
            if self.counted.insert((Arc::clone(&pod.name), pod.created)) {
                starts.extend(took(pod, since).map(|took| (since, took)));
            }
        }
        // In the order in which they became ready, so that the oldest starts are the ones that are dropped.
        starts.sort_unstable();
        self.took.extend(starts.into_iter().map(|(_, took)| took));
        let surplus = self.took.len().saturating_sub(REMEMBERED);
        self.took.drain(..surplus);
        self.settle();
    }

    /// The lead time to use: the 90th percentile (nearest rank) of the last 20 starts, between 30 s and 20 min, in
    /// whole minutes; `None` before three starts were observed.
    ///
    /// # Guarantees
    /// The result changes only when the percentile is a quarter of a minute beyond the minute in use, so that a single
    /// start does not make the forecaster start learning again.
    pub fn measured(&self) -> Option<SignedDuration> {
        self.in_use
    }

    fn settle(&mut self) {
        let Some(measured) = self.percentile() else {
            return;
        };
        let minute = SignedDuration::from_mins(1);
        // The minute in use stands for measurements of the 60 s that end with it.
        let stays = self
            .in_use
            .is_some_and(|in_use| measured <= in_use + SLACK && measured > in_use - minute - SLACK);
        if !stays {
            self.in_use = Some(whole_minutes(measured));
        }
    }

    fn percentile(&self) -> Option<SignedDuration> {
        if self.took.len() < NEEDED {
            return None;
        }
        let mut sorted: Vec<_> = self.took.iter().copied().collect();
        sorted.sort_unstable();
        // Nearest rank of the 90th percentile, counted from zero.
        let rank = (sorted.len() * 9).div_ceil(10).saturating_sub(1);
        let span = sorted.get(rank).copied()?;
        Some(span.clamp(SHORTEST, LONGEST))
    }
}

/// A measured span as it is used: within bounds, and up to the next whole minute.
fn whole_minutes(measured: SignedDuration) -> SignedDuration {
    let seconds = measured.clamp(SHORTEST, LONGEST).as_secs();
    SignedDuration::from_mins((seconds + 59) / 60)
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = pod.ready.filter(|ready| ready.status == Status::True)?;
    (!pod.deleting).then_some(ready.since)
}

/// Time from creation, or from the start if creation is not known, to readiness; `None` if it is not a start-up.
fn took(pod: &Pod, since: Timestamp) -> Option<SignedDuration> {
    let took = since.duration_since(pod.created.or(pod.started)?);
    // A pod that became ready after `LONGEST` has only become ready again.
    (took <= LONGEST && took >= -SKEW).then(|| took.max(SignedDuration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Readiness, examples};

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

    fn pod(name: usize, seconds: i64) -> Arc<Pod> {
        let ready = Readiness {
            status: Status::True,
            since: NOW + SignedDuration::from_secs(seconds),
        };
        Arc::new(Pod {
            ready: Some(ready),
            ..examples::pod(&format!("web-{name:03}"), NOW, Status::True)
        })
    }

    fn measured(starts: &[i64]) -> Option<i64> {
        let mut times = LeadTimes::default();
        let pods: Vec<_> = (0..).zip(starts).map(|(n, s)| pod(n, *s)).collect();
        times.observe(&pods);
        times.observe(&pods);
        times.measured().map(|span| span.as_secs())
    }

    #[test]
    fn the_lead_time_is_the_ninetieth_percentile_in_whole_minutes() {
        for (starts, want) in [
            (&[][..], None),
            (&[50, 50], None),
            (&[50, 50, 50], Some(60)),
            (&[1, 1, 1], Some(60)),
            (&[-2, -2, -2], Some(60)),
            (&[-90, -90, -90], None),
            (&[61, 61, 61], Some(120)),
            (&[10, 10, 10, 10, 10, 10, 10, 10, 130, 900], Some(180)),
            // A pod that regained its readiness after an hour is no slow start.
            (&[50, 50, 50, 3600], Some(60)),
            (&[1200, 1200, 1200], Some(1200)),
        ] {
            assert_eq!(measured(starts), want, "{starts:?}");
        }
    }

    #[test]
    fn only_the_last_twenty_starts_count_each_once() {
        let slow: Vec<i64> = std::iter::repeat_n(600, 20).collect();
        let mut times = LeadTimes::default();
        let mut pods: Vec<_> = (0..).zip(&slow).map(|(n, s)| pod(n, *s)).collect();
        times.observe(&pods);
        assert_eq!(times.measured(), Some(SignedDuration::from_mins(10)));
        pods.extend((20..39).map(|n| pod(n, 50)));
        times.observe(&pods);
        assert_eq!(times.measured(), Some(SignedDuration::from_mins(1)));
        assert_eq!(times.took.len(), REMEMBERED);
        times.observe(&[]);
        assert!(times.counted.is_empty());
    }

    #[test]
    fn a_pod_recreated_under_the_same_name_counts_again() {
        let mut times = LeadTimes::default();
        for round in 0..3 {
            let mut pods = vec![pod(0, 50)];
            for pod in pods.iter_mut().map(Arc::make_mut) {
                let later = SignedDuration::from_hours(round);
                pod.created = Some(NOW + later);
                let ready = pod.ready.as_mut().unwrap();
                ready.since = NOW + later + SignedDuration::from_secs(50);
            }
            times.observe(&pods);
            times.observe(&pods);
        }
        assert_eq!(times.took, [SignedDuration::from_secs(50); 3]);
        assert_eq!(times.counted.len(), 1);
    }

    #[test]
    fn a_small_difference_does_not_change_the_minute_in_use() {
        let mut times = LeadTimes::default();
        let mut next = 0;
        for (start, minutes) in [(110, 2), (130, 2), (134, 2), (136, 3), (110, 3), (104, 2)] {
            let pods: Vec<_> = (next..next + 20).map(|n| pod(n, start)).collect();
            next += 20;
            times.observe(&pods);
            let want = Some(SignedDuration::from_mins(minutes));
            assert_eq!(times.measured(), want, "{start}");
        }
    }

    #[test]
    fn the_spec_overrides_what_was_measured() {
        let span = SignedDuration::from_secs;
        for (written, measured, seconds, origin) in [
            (Some(span(45)), Some(span(60)), 45, "spec"),
            (None, Some(span(60)), 60, "measured"),
            (None, Some(span(90)), 120, "measured"),
            (None, Some(span(5)), 60, "measured"),
            (None, Some(SignedDuration::MAX), 1200, "measured"),
            (Some(span(90)), Some(span(300)), 90, "spec"),
            (None, None, 120, "default"),
        ] {
            let lead = LeadTime::of(written, measured);
            assert_eq!(
                (lead.span.as_secs(), lead.origin.as_str()),
                (seconds, origin)
            );
        }
    }
}
