//! `spec.behavior` as the user wrote it, its defaults, and the rate limits it sets.
//!
//! A field left out stays `None`, which distinguishes what the user wrote from what the API server
//! would fill in. The accessors apply the defaults.
//!
//! Source: upstream `calculateScaleUpLimitWithScalingRules`, `...ScaleDown...`, and
//! `pkg/apis/autoscaling/v2/defaults.go`.

use jiff::{SignedDuration, Timestamp};

use super::{
    Settings,
    log::{Direction, Log, ScaleEvent},
    ratio::Tolerance,
};
use crate::Replicas;

/// `spec.behavior`.
///
/// ```
/// use foretide_domain::hpa::{Behavior, Direction, PolicyKind, ScalingPolicy, ScalingRules};
/// use jiff::SignedDuration;
///
/// let one_pod_a_minute = ScalingPolicy {
///     kind: PolicyKind::Pods,
///     value: 1,
///     period: SignedDuration::from_mins(1),
/// };
/// let behavior = Behavior {
///     scale_down: ScalingRules {
///         policies: Some(vec![one_pod_a_minute]),
///         ..ScalingRules::default()
///     },
///     ..Behavior::default()
/// };
/// assert_eq!(behavior.policies(Direction::Down), [one_pod_a_minute]);
/// // The API server's defaults apply to scale-up: 4 pods, or 100 %.
/// assert_eq!(behavior.policies(Direction::Up).len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behavior {
    /// `scaleUp`, as written.
    pub scale_up: ScalingRules,
    /// `scaleDown`, as written.
    pub scale_down: ScalingRules,
}

/// The rules of one direction; `None` where the user wrote nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingRules {
    /// `stabilizationWindowSeconds`.
    pub window: Option<SignedDuration>,
    /// `selectPolicy`.
    pub select: Option<PolicySelect>,
    /// `policies`.
    pub policies: Option<Vec<ScalingPolicy>>,
    /// `tolerance`, converted by `Quantity::approx_f64`.
    pub tolerance: Option<f64>,
}

/// Choice among several policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicySelect {
    /// The policy that allows the largest change.
    #[default]
    Max,
    /// The policy that allows the smallest change.
    Min,
    /// No change in this direction at all.
    Disabled,
}

/// Largest change within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalingPolicy {
    /// Unit of `value`.
    pub kind: PolicyKind,
    /// Pods, or percent of the count at the start of the period.
    pub value: i32,
    /// Length of the period, which ends now.
    pub period: SignedDuration,
}

/// Unit of a policy's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Number of pods.
    Pods,
    /// Percent of the count at the start of the period.
    Percent,
}

/// The period of the default policies, as the API server fills them in.
const PERIOD: SignedDuration = SignedDuration::from_secs(15);
const DOUBLE: ScalingPolicy = ScalingPolicy {
    kind: PolicyKind::Percent,
    value: 100,
    period: PERIOD,
};
const FOUR_PODS: ScalingPolicy = ScalingPolicy {
    kind: PolicyKind::Pods,
    value: 4,
    period: PERIOD,
};
const SCALE_UP_DEFAULT: &[ScalingPolicy] = &[FOUR_PODS, DOUBLE];
const SCALE_DOWN_DEFAULT: &[ScalingPolicy] = &[DOUBLE];

/// The stabilization windows of both directions, which end now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StabilizationWindows {
    /// Window for scale-down: the highest value in it counts.
    pub down: SignedDuration,
    /// Window for scale-up: the lowest value in it counts.
    pub up: SignedDuration,
    /// True if a value exactly as old as the window counts. Upstream counts it without `behavior` only.
    pub inclusive: bool,
}

impl StabilizationWindows {
    /// The windows in force: where none is written, the controller's flag for down and none for up.
    pub fn in_force(behavior: Option<&Behavior>, settings: &Settings) -> Self {
        let default = Behavior::default();
        let rules = behavior.unwrap_or(&default);
        Self {
            down: rules.window(Direction::Down, settings),
            up: rules.window(Direction::Up, settings),
            inclusive: behavior.is_none(),
        }
    }

    /// Returns true if a value recorded at `at` counts at `now` in a window of this length.
    ///
    /// # Guarantees
    /// A longer window reaches at least as far.
    ///
    /// ```
    /// use foretide_domain::hpa::{Settings, StabilizationWindows};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let windows = StabilizationWindows::in_force(None, &Settings::default());
    /// let at = Timestamp::UNIX_EPOCH;
    /// let five_minutes = SignedDuration::from_mins(5);
    /// // Without `behavior`, a value exactly as old as the window still counts.
    /// assert!(windows.reaches(windows.down, at, at + five_minutes));
    /// ```
    pub fn reaches(self, window: SignedDuration, at: Timestamp, now: Timestamp) -> bool {
        let age = now.duration_since(at);
        age < window || (self.inclusive && age == window)
    }
}

impl Behavior {
    /// The rules of one direction, as written.
    pub const fn rules(&self, direction: Direction) -> &ScalingRules {
        match direction {
            Direction::Up => &self.scale_up,
            Direction::Down => &self.scale_down,
        }
    }

    /// The stabilization window in force: up 0 s, down the controller's flag where none is written.
    pub fn window(&self, direction: Direction, settings: &Settings) -> SignedDuration {
        self.rules(direction).window.unwrap_or(match direction {
            Direction::Up => SignedDuration::ZERO,
            Direction::Down => settings.downscale_stabilization,
        })
    }

    /// The policies in force: up 4 pods or 100 % per 15 s, down 100 % per 15 s where none are written.
    pub fn policies(&self, direction: Direction) -> &[ScalingPolicy] {
        match (&self.rules(direction).policies, direction) {
            (Some(written), _) => written,
            (None, Direction::Up) => SCALE_UP_DEFAULT,
            (None, Direction::Down) => SCALE_DOWN_DEFAULT,
        }
    }

    /// The choice among policies in force: the largest change where none is written.
    pub fn select(&self, direction: Direction) -> PolicySelect {
        self.rules(direction).select.unwrap_or_default()
    }

    /// The longest period of the policies of one direction; zero without policies.
    pub fn longest_period(&self, direction: Direction) -> SignedDuration {
        self.policies(direction)
            .iter()
            .map(|p| p.period)
            .max()
            .unwrap_or_default()
    }

    /// The tolerances in force: the flag in a direction where none is written.
    pub fn tolerance(behavior: Option<&Self>, settings: &Settings) -> Tolerance {
        let (down, up) = behavior.map_or((None, None), |behavior| {
            (behavior.scale_down.tolerance, behavior.scale_up.tolerance)
        });
        Tolerance {
            down: down.unwrap_or(settings.tolerance),
            up: up.unwrap_or(settings.tolerance),
        }
    }

    /// The largest count a scale-up may reach now.
    ///
    /// Per policy, `start` being the count at the beginning of its period: `start + value` or
    /// `ceil(start * (1 + value/100))`; then the largest or the smallest of them. `Disabled`: `current`.
    /// Computed in `f64` in upstream's order; where exact arithmetic differs, this result is the right one.
    ///
    /// ```
    /// use foretide_domain::Replicas;
    /// use foretide_domain::hpa::{Behavior, Log};
    ///
    /// let now = jiff::Timestamp::UNIX_EPOCH;
    /// let limit = |current| Behavior::default().up_limit(current, &Log::default(), now);
    /// // The larger of 4 more pods and twice as many.
    /// assert_eq!(limit(Replicas::new(2)), Replicas::new(6));
    /// assert_eq!(limit(Replicas::new(10)), Replicas::new(20));
    /// ```
    pub fn up_limit(&self, current: Replicas, log: &Log, now: Timestamp) -> Replicas {
        let reaches = self.reaches(Direction::Up, current, log, now);
        match self.select(Direction::Up) {
            PolicySelect::Max => reaches.max(),
            PolicySelect::Min => reaches.min(),
            PolicySelect::Disabled => None,
        }
        // Disabled, or an empty list of policies.
        .unwrap_or(current)
    }

    /// The smallest count a scale-down may reach now.
    ///
    /// Per policy `start - value` or `trunc(start * (1 - value/100))`; the largest *change* is the
    /// smallest count, so `Max` takes the minimum. `Disabled`: `current`.
    pub fn down_limit(&self, current: Replicas, log: &Log, now: Timestamp) -> Replicas {
        let reaches = self.reaches(Direction::Down, current, log, now);
        match self.select(Direction::Down) {
            PolicySelect::Max => reaches.min(),
            PolicySelect::Min => reaches.max(),
            PolicySelect::Disabled => None,
        }
        .unwrap_or(current)
    }

    /// The count that each policy of one direction allows.
    fn reaches(
        &self,
        direction: Direction,
        current: Replicas,
        log: &Log,
        now: Timestamp,
    ) -> impl Iterator<Item = Replicas> {
        self.policies(direction).iter().map(move |policy| {
            let start = log.replicas_before(current, policy.period, now);
            let (pods, part) = (i64::from(policy.value), f64::from(policy.value) / 100.0);
            match (direction, policy.kind) {
                (Direction::Up, PolicyKind::Pods) => saturate(start.saturating_add(pods)),
                (Direction::Down, PolicyKind::Pods) => saturate(start.saturating_sub(pods)),
                (Direction::Up, PolicyKind::Percent) => {
                    Replicas::from_f64_ceil(as_f64(start) * (1.0 + part))
                }
                (Direction::Down, PolicyKind::Percent) => {
                    Replicas::from_f64_trunc(as_f64(start) * (1.0 - part))
                }
            }
        })
    }
}

/// Clamps a count to the range of the API; sums of events may exceed it.
fn saturate(n: i64) -> Replicas {
    Replicas::new(u32::try_from(n.max(0)).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn as_f64(n: i64) -> f64 {
    n as f64
}

/// The log after a change from `from` to `to` was applied at `at`.
///
/// With `behavior`, the change is stored in the log of its direction: entries older than the longest
/// policy period of that direction become outdated, the last outdated one is replaced, else the
/// change is appended. Without `behavior` nothing would ever read it, so nothing is stored.
///
/// ```
/// use foretide_domain::Replicas;
/// use foretide_domain::hpa::{Behavior, Direction, Log, record_scale};
/// use jiff::{SignedDuration, Timestamp};
///
/// let (four, six) = (Replicas::new(4), Replicas::new(6));
/// let at = Timestamp::UNIX_EPOCH;
/// let log = record_scale(Log::default(), Some(&Behavior::default()), four, six, at);
/// let period = SignedDuration::from_secs(15);
/// assert_eq!(log.changed(Direction::Up, period, at + SignedDuration::from_secs(10)), 2);
/// assert_eq!(log.changed(Direction::Up, period, at + period), 0);
/// ```
pub fn record_scale(
    mut log: Log,
    behavior: Option<&Behavior>,
    from: Replicas,
    to: Replicas,
    at: Timestamp,
) -> Log {
    log.scaled_to_zero = from > Replicas::ZERO && to == Replicas::ZERO;
    if let Some(behavior) = behavior.filter(|_| from != to) {
        let up = to > from;
        let direction = if up { Direction::Up } else { Direction::Down };
        let events = if up {
            &mut log.scale_up
        } else {
            &mut log.scale_down
        };
        let period = behavior.longest_period(direction);
        for event in events.iter_mut() {
            event.outdated |= at.duration_since(event.at) > period;
        }
        let event = ScaleEvent {
            at,
            change: from.distance(to),
            outdated: false,
        };
        match events.iter_mut().rfind(|e| e.outdated) {
            Some(slot) => *slot = event,
            None => events.push(event),
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn event(age_s: i64, change: u32, outdated: bool) -> ScaleEvent {
        let at = NOW - SignedDuration::from_secs(age_s);
        ScaleEvent {
            at,
            change: Replicas::new(change),
            outdated,
        }
    }

    #[test]
    fn an_event_of_exactly_a_periods_age_is_not_counted_but_keeps_its_slot() {
        let period = SignedDuration::from_secs(60);
        let policy = ScalingPolicy {
            kind: PolicyKind::Pods,
            value: 1,
            period,
        };
        let rules = ScalingRules {
            policies: Some(vec![policy]),
            ..ScalingRules::default()
        };
        let behavior = Behavior {
            scale_up: rules,
            ..Behavior::default()
        };
        for (age_s, changed, after) in [
            (59, 3, vec![event(59, 3, false), event(0, 2, false)]),
            (60, 0, vec![event(60, 3, false), event(0, 2, false)]),
            (61, 0, vec![event(0, 2, false)]),
        ] {
            let log = Log {
                scale_up: vec![event(age_s, 3, false)],
                ..Log::default()
            };
            assert_eq!(
                log.changed(Direction::Up, period, NOW),
                changed,
                "{age_s} s"
            );
            let (from, to) = (Replicas::new(4), Replicas::new(6));
            let got = record_scale(log, Some(&behavior), from, to, NOW);
            assert_eq!(got.scale_up, after, "{age_s} s");
        }
    }
}
