//! `spec.behavior` as the user wrote it, its defaults, and the rate limits it sets.
//!
//! A field left out stays `None`, so that other code can tell what the user asked for from what the
//! API would have filled in; the defaults apply when a value is asked for.
//!
//! Source: upstream `calculateScaleUpLimitWithScalingRules`, `...ScaleDown...`, and
//! `pkg/apis/autoscaling/v2/defaults.go`.

use jiff::{SignedDuration, Timestamp};

use super::{Settings, log::Log, ratio::Tolerance};
use crate::domain::Replicas;

/// `spec.behavior`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behavior {
    /// `scaleUp`, as written.
    pub scale_up: Rules,
    /// `scaleDown`, as written.
    pub scale_down: Rules,
}

/// The rules of one direction; `None` where the user wrote nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// `stabilizationWindowSeconds`.
    pub window: Option<SignedDuration>,
    /// `selectPolicy`.
    pub select: Option<Select>,
    /// `policies`.
    pub policies: Option<Vec<Policy>>,
    /// `tolerance`, converted by `Quantity::approx_f64`.
    pub tolerance: Option<f64>,
}

/// Up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// More replicas.
    Up,
    /// Fewer replicas.
    Down,
}

/// Which policy counts when there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// The one that allows the largest change.
    #[default]
    Max,
    /// The one that allows the smallest change.
    Min,
    /// No change in this direction at all.
    Disabled,
}

/// How much may change within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What `value` counts.
    pub kind: PolicyKind,
    /// Pods, or percent of the count at the start of the period.
    pub value: i32,
    /// How far the period reaches back.
    pub period: SignedDuration,
}

/// What a policy's value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Pods.
    Pods,
    /// Percent.
    Percent,
}

const PERIOD: SignedDuration = SignedDuration::from_secs(15);
const DOUBLE: Policy = Policy {
    kind: PolicyKind::Percent,
    value: 100,
    period: PERIOD,
};
const FOUR_PODS: Policy = Policy {
    kind: PolicyKind::Pods,
    value: 4,
    period: PERIOD,
};
const SCALE_UP_DEFAULT: &[Policy] = &[FOUR_PODS, DOUBLE];
const SCALE_DOWN_DEFAULT: &[Policy] = &[DOUBLE];

impl Behavior {
    /// The rules of one direction, as written.
    #[must_use]
    pub const fn rules(&self, direction: Direction) -> &Rules {
        match direction {
            Direction::Up => &self.scale_up,
            Direction::Down => &self.scale_down,
        }
    }

    /// The stabilization window in force: up 0 s, down the controller's flag where none is written.
    #[must_use]
    pub fn window(&self, direction: Direction, settings: &Settings) -> SignedDuration {
        self.rules(direction).window.unwrap_or(match direction {
            Direction::Up => SignedDuration::ZERO,
            Direction::Down => settings.downscale_stabilization,
        })
    }

    /// The policies in force: up 4 pods or 100 % per 15 s, down 100 % per 15 s where none are written.
    #[must_use]
    pub fn policies(&self, direction: Direction) -> &[Policy] {
        match (&self.rules(direction).policies, direction) {
            (Some(written), _) => written,
            (None, Direction::Up) => SCALE_UP_DEFAULT,
            (None, Direction::Down) => SCALE_DOWN_DEFAULT,
        }
    }

    /// The choice among policies in force: the largest change where none is written.
    #[must_use]
    pub fn select(&self, direction: Direction) -> Select {
        self.rules(direction).select.unwrap_or_default()
    }

    /// The longest period of the policies of one direction; zero without policies.
    #[must_use]
    pub fn longest_period(&self, direction: Direction) -> SignedDuration {
        self.policies(direction)
            .iter()
            .map(|p| p.period)
            .max()
            .unwrap_or_default()
    }

    /// The tolerances in force: the flag in a direction where none is written.
    #[must_use]
    pub fn tolerance(behavior: Option<&Self>, settings: &Settings) -> Tolerance {
        let written = |direction| behavior.and_then(|b| b.rules(direction).tolerance);
        Tolerance {
            down: written(Direction::Down).unwrap_or(settings.tolerance),
            up: written(Direction::Up).unwrap_or(settings.tolerance),
        }
    }

    /// The largest count a scale-up may reach now.
    ///
    /// Per policy, `start` being the count at the beginning of its period: `start + value` or
    /// `ceil(start * (1 + value/100))`; then the largest or the smallest of them. `Disabled`: `current`.
    /// Computed in `f64` in this order; where exact arithmetic differs, this result is the right one.
    #[must_use]
    pub fn up_limit(&self, current: Replicas, log: &Log, now: Timestamp) -> Replicas {
        let reach = |policy: &Policy| {
            let start = log.replicas_before(current, policy.period, now);
            match policy.kind {
                PolicyKind::Pods => saturate(start.saturating_add(i64::from(policy.value))),
                PolicyKind::Percent => {
                    Replicas::from_f64_ceil(as_f64(start) * (1.0 + f64::from(policy.value) / 100.0))
                }
            }
        };
        let reaches = self.policies(Direction::Up).iter().map(reach);
        match self.select(Direction::Up) {
            Select::Max => reaches.max(),
            Select::Min => reaches.min(),
            Select::Disabled => None,
        }
        .unwrap_or(current)
    }

    /// The smallest count a scale-down may reach now.
    ///
    /// Per policy `start - value` or `trunc(start * (1 - value/100))`; the largest *change* is the
    /// smallest count, so `Max` takes the minimum. `Disabled`: `current`.
    #[must_use]
    pub fn down_limit(&self, current: Replicas, log: &Log, now: Timestamp) -> Replicas {
        let reach = |policy: &Policy| {
            let start = log.replicas_before(current, policy.period, now);
            match policy.kind {
                PolicyKind::Pods => saturate(start.saturating_sub(i64::from(policy.value))),
                PolicyKind::Percent => Replicas::from_f64_trunc(
                    as_f64(start) * (1.0 - f64::from(policy.value) / 100.0),
                ),
            }
        };
        let reaches = self.policies(Direction::Down).iter().map(reach);
        match self.select(Direction::Down) {
            Select::Max => reaches.min(),
            Select::Min => reaches.max(),
            Select::Disabled => None,
        }
        .unwrap_or(current)
    }
}

/// A count that sums of events may have pushed out of range, back in range.
fn saturate(n: i64) -> Replicas {
    Replicas::new(u32::try_from(n.max(0)).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn as_f64(n: i64) -> f64 {
    n as f64
}
