//! From the recommendation to the count that may be set now: stabilization, rate limits and bounds, in
//! this order.
//!
//! There are two rules, and an absent `behavior` is not an empty one. Without it: scale-down waits for
//! the highest recommendation of the window, a scale-up at most doubles. With it: both directions have
//! a window, and policies limit the rate. For a current count outside the bounds, see [`normalize`].
//!
//! Source: upstream `normalizeDesiredReplicas` and `normalizeDesiredReplicasWithBehaviors`.

use jiff::Timestamp;

use super::{Behavior, ConditionReason, Hpa, Log, Settings, StabilizationWindows};
use crate::{ReplicaBounds, Replicas};

/// The current count, and the one that the metrics recommend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// `spec.replicas` now.
    pub current: Replicas,
    /// The largest proposal, before stabilization and bounds.
    pub recommended: Replicas,
}

/// The count that may be set, and the reasons for changing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Normalized {
    /// The count after the stabilization windows.
    pub stabilized: Replicas,
    /// The count after rate limits and bounds: the one to set.
    pub desired: Replicas,
    /// Reason of `AbleToScale` (always true): `ReadyForNewScale` or the window that holds the count.
    pub able: ConditionReason,
    /// Reason of `ScalingLimited`, which is true iff `desired` differs from `stabilized`.
    pub limit: ConditionReason,
    /// The log with this recommendation in it.
    pub log: Log,
}

impl Normalized {
    /// Returns true if a bound or a rate limit changed the count, which is the status of the condition
    /// `ScalingLimited`.
    pub fn limited(&self) -> bool {
        self.desired != self.stabilized
    }
}

/// Stabilizes and limits a recommendation; `log` gets it as a new entry.
///
/// Usable with any log and any bounds (`hpa.metrics` is not read). With a `behavior`, only one bound is
/// checked per direction, as upstream does: a caller whose `current` lies outside the bounds clamps
/// the result itself.
///
/// ```
/// use foretide_domain::hpa::{ConditionReason, Hpa, Log, Settings, Step, normalize};
/// use foretide_domain::{ReplicaBounds, Replicas};
///
/// let hpa = Hpa {
///     bounds: ReplicaBounds::new(Replicas::new(1), Replicas::new(100)),
///     metrics: &[],
///     behavior: None,
/// };
/// let step = Step { current: Replicas::new(10), recommended: Replicas::new(90) };
/// let now = "2026-03-01T10:00:00Z".parse()?;
/// let got = normalize(&hpa, step, Log::default(), &Settings::default(), now);
/// // Without `behavior`, a scale-up at most doubles the count.
/// assert_eq!((got.desired, got.limit), (Replicas::new(20), ConditionReason::ScaleUpLimit));
/// # Ok::<(), jiff::Error>(())
/// ```
pub fn normalize(
    hpa: &Hpa<'_>,
    step: Step,
    mut log: Log,
    settings: &Settings,
    now: Timestamp,
) -> Normalized {
    let windows = StabilizationWindows::in_force(hpa.behavior, settings);
    let (stabilized, (desired, limit)) = match hpa.behavior {
        None => {
            let stabilized = stabilize_down(step.recommended, windows, &mut log, now);
            (
                stabilized,
                limit_plain(step.current, stabilized, hpa.bounds, settings),
            )
        }
        Some(behavior) => {
            let stabilized = stabilize_both(step, windows, &mut log, now);
            let stable = Step {
                recommended: stabilized,
                ..step
            };
            (
                stabilized,
                limit_by_behavior(stable, hpa.bounds, behavior, &log, now),
            )
        }
    };
    let able = match (stabilized == step.recommended, hpa.behavior) {
        (true, _) => ConditionReason::ReadyForNewScale,
        (false, Some(_)) if step.recommended >= step.current => ConditionReason::ScaleUpStabilized,
        (false, _) => ConditionReason::ScaleDownStabilized,
    };
    Normalized {
        stabilized,
        desired,
        able,
        limit,
        log,
    }
}

/// The highest of the recommendation and the entries within the scale-down window. Any older slot is free.
fn stabilize_down(
    recommended: Replicas,
    windows: StabilizationWindows,
    log: &mut Log,
    now: Timestamp,
) -> Replicas {
    let stabilized = log
        .recommendations()
        .iter()
        .filter(|r| windows.reaches(windows.down, r.at, now))
        .map(|r| r.replicas)
        .fold(recommended, Ord::max);
    log.write(recommended, now, |r| {
        !windows.reaches(windows.down, r.at, now)
    });
    stabilized
}

/// The current count moved into `[lowest of the up window, highest of the down window]`. A slot older than
/// both windows is free; one of exactly a window's age neither counts nor is free, as upstream.
fn stabilize_both(
    step: Step,
    windows: StabilizationWindows,
    log: &mut Log,
    now: Timestamp,
) -> Replicas {
    let (mut up, mut down) = (step.recommended, step.recommended);
    for r in log.recommendations() {
        if windows.reaches(windows.up, r.at, now) {
            up = up.min(r.replicas);
        }
        if windows.reaches(windows.down, r.at, now) {
            down = down.max(r.replicas);
        }
    }
    let longest = windows.up.max(windows.down);
    log.write(step.recommended, now, |r| {
        now.duration_since(r.at) > longest
    });
    step.current.max(up).min(down)
}

/// Bounds and the doubling limit, for specs without `behavior`.
fn limit_plain(
    current: Replicas,
    stabilized: Replicas,
    bounds: ReplicaBounds,
    settings: &Settings,
) -> (Replicas, ConditionReason) {
    let doubled = settings.scale_up_limit_factor * current.as_f64();
    let limit = Replicas::from_f64_trunc(doubled.max(settings.scale_up_limit_minimum));
    if stabilized < bounds.min {
        (bounds.min, ConditionReason::TooFewReplicas)
    } else if stabilized <= bounds.max.min(limit) {
        (stabilized, ConditionReason::DesiredWithinRange)
    } else if bounds.max > limit {
        (limit, ConditionReason::ScaleUpLimit)
    } else {
        (bounds.max, ConditionReason::TooManyReplicas)
    }
}

/// Bounds and rate limits of `behavior`: one of each per direction, none when nothing moves.
fn limit_by_behavior(
    step: Step,
    bounds: ReplicaBounds,
    behavior: &Behavior,
    log: &Log,
    now: Timestamp,
) -> (Replicas, ConditionReason) {
    let Step {
        current,
        recommended: stabilized,
    } = step;
    if stabilized > current {
        // Earlier changes may have used up the limit; a scale-up still never becomes a scale-down.
        let limit = behavior.up_limit(current, log, now).max(current);
        if stabilized > bounds.max.min(limit) {
            return if bounds.max > limit {
                (limit, ConditionReason::ScaleUpLimit)
            } else {
                (bounds.max, ConditionReason::TooManyReplicas)
            };
        }
    } else if stabilized < current {
        let limit = behavior.down_limit(current, log, now).min(current);
        if stabilized < bounds.min.max(limit) {
            return if bounds.min < limit {
                (limit, ConditionReason::ScaleDownLimit)
            } else {
                (bounds.min, ConditionReason::TooFewReplicas)
            };
        }
    }
    (stabilized, ConditionReason::DesiredWithinRange)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::hpa::{Recommendation, ScalingRules};

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn log(readings: &[(i64, u32)]) -> Log {
        let entry = |(age_s, count): &(i64, u32)| Recommendation {
            at: NOW - SignedDuration::from_secs(*age_s),
            replicas: Replicas::new(*count),
            mirrored: true,
        };
        Log {
            recommendations: Some(readings.iter().map(entry).collect()),
            ..Log::default()
        }
    }

    fn run(behavior: Option<&Behavior>, readings: &[(i64, u32)]) -> (u32, Vec<u32>) {
        let bounds = ReplicaBounds::new(Replicas::new(1), Replicas::new(100));
        let hpa = Hpa {
            bounds,
            metrics: &[],
            behavior,
        };
        let step = Step {
            current: Replicas::new(10),
            recommended: Replicas::new(5),
        };
        let got = normalize(&hpa, step, log(readings), &Settings::default(), NOW);
        let after = got
            .log
            .recommendations()
            .iter()
            .map(|r| r.replicas.get())
            .collect();
        (got.stabilized.get(), after)
    }

    #[test]
    fn an_entry_of_exactly_the_windows_age_counts_without_a_behavior_only() {
        let explicit = Behavior {
            scale_down: ScalingRules {
                window: Some(SignedDuration::from_secs(300)),
                ..ScalingRules::default()
            },
            ..Behavior::default()
        };
        for (age_s, nil, some) in [(299, 9, 9), (300, 9, 5), (301, 5, 5)] {
            assert_eq!(run(None, &[(age_s, 9)]).0, nil, "no behavior, {age_s} s");
            assert_eq!(
                run(Some(&explicit), &[(age_s, 9)]).0,
                some,
                "behavior, {age_s} s"
            );
        }
    }

    #[test]
    fn the_last_slot_older_than_the_windows_is_used_again() {
        let explicit = Behavior::default();
        for (readings, nil, some) in [
            (
                &[(400, 7), (350, 8), (10, 9)][..],
                vec![7, 5, 9],
                vec![7, 5, 9],
            ),
            (&[(300, 7), (10, 9)][..], vec![7, 9, 5], vec![7, 9, 5]),
            (&[][..], vec![5], vec![5]),
        ] {
            assert_eq!(run(None, readings).1, nil, "no behavior, {readings:?}");
            assert_eq!(
                run(Some(&explicit), readings).1,
                some,
                "behavior, {readings:?}"
            );
        }
    }
}
