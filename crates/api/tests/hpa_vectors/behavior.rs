//! Stabilization, rate limits, and the log that they read.

use foretide_domain::{
    ReplicaBounds, Replicas,
    hpa::{
        Behavior, Direction, Hpa, Log, PolicyKind, ScalingPolicy, ScalingRules, Step,
        normalize as normalized, record_scale,
    },
    observation::Status,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    Config, Event, History, NOW, behavior, condition,
    controller::{ABLE_TO_SCALE, SCALING_LIMITED},
    events, events_after, recommendations, seconds,
    vectors::{Fallible, same, shapes},
    with_log,
};

shapes! {
    Conversion {
        current_replicas: i32, desired_replicas: i32, min_replicas: i32, max_replicas: i32,
        scale_up_rules: Option<Value>, scale_down_rules: Option<Value>, config: Config = default,
        history: History = default,
    }
    Stabilization {
        current_replicas: i32 = default, desired_replicas: i32, scale_up_window_s: Option<i32>,
        scale_down_window_s: Option<i32>, config: Config = default, history: History = default,
    }
    Normalization {
        current_replicas: i32, desired_replicas: i32, min_replicas: i32, max_replicas: i32,
        behavior: Option<Value>, config: Config = default, history: History = default,
    }
    Limited { current_replicas: i32, rules: Option<Value>, history: History = default }
    Periods { periods_s: Vec<i64> }
    Scaled { replica_change: i32, scaling_rules: Option<Value>, previous_events: Vec<Event> = default }
}

/// An empty log of recommendations: stabilization changes nothing, limits and bounds remain.
pub(crate) fn convert(row: Conversion, has_behavior: bool) -> Fallible<Value> {
    let rules = json!({"scaleUp": row.scale_up_rules, "scaleDown": row.scale_down_rules});
    let behavior = has_behavior.then(|| behavior(&rules)).transpose()?;
    let log = Log {
        recommendations: Some(Vec::new()),
        ..row.history.into()
    };
    let spec = spec([row.min_replicas, row.max_replicas], behavior.as_ref());
    let step = step(row.current_replicas, row.desired_replicas);
    let got = normalized(&spec, step, log, &row.config.settings()?, NOW);
    Ok(json!({"replicas": got.desired.as_i32(), "reason": got.limit.as_str()}))
}

pub(crate) fn stabilize(row: Stabilization) -> Fallible<Value> {
    let (up, down) = (row.scale_up_window_s, row.scale_down_window_s);
    let behavior = up.or(down).map(|_| {
        let [up, down] = [up, down].map(|s| json!({"stabilizationWindowSeconds": s}));
        behavior(&json!({"scaleUp": up, "scaleDown": down}))
    });
    let behavior = behavior.transpose()?;
    let spec = spec([0, i32::MAX], behavior.as_ref());
    let step = step(row.current_replicas, row.desired_replicas);
    let got = normalized(
        &spec,
        step,
        row.history.into(),
        &row.config.settings()?,
        NOW,
    );
    Ok(json!({
        "replicas": got.stabilized.as_i32(),
        "log_length": got.log.recommendations().len(),
        "recommendations_after": recommendations(&got.log),
    }))
}

pub(crate) fn normalize(row: Normalization) -> Fallible<Value> {
    let behavior = row.behavior.as_ref().map(behavior).transpose()?;
    let spec = spec([row.min_replicas, row.max_replicas], behavior.as_ref());
    let step = step(row.current_replicas, row.desired_replicas);
    let got = normalized(
        &spec,
        step,
        row.history.into(),
        &row.config.settings()?,
        NOW,
    );
    let limited = if got.limited() {
        Status::True
    } else {
        Status::False
    };
    let result = json!({
        "replicas": got.desired.as_i32(),
        "conditions": [
            condition(ABLE_TO_SCALE, Status::True, got.able.as_str()),
            condition(SCALING_LIMITED, limited, got.limit.as_str()),
        ],
    });
    let log = record_scale(got.log, spec.behavior, step.current, got.desired, NOW);
    Ok(with_log(result, &log))
}

fn spec([min, max]: [i32; 2], behavior: Option<&Behavior>) -> Hpa<'_> {
    Hpa {
        bounds: ReplicaBounds::new(Replicas::from_i32(min), Replicas::from_i32(max)),
        metrics: &[],
        behavior,
    }
}

fn step(current: i32, recommended: i32) -> Step {
    Step {
        current: Replicas::from_i32(current),
        recommended: Replicas::from_i32(recommended),
    }
}

type Limit = fn(&Behavior, Replicas, &Log, Timestamp) -> Replicas;

/// The same rules in either direction, of which a limit reads one.
pub(crate) fn limit(row: Limited, limit: Limit) -> Fallible<Value> {
    let behavior = behavior(&json!({"scaleUp": row.rules, "scaleDown": row.rules}))?;
    let current = Replicas::from_i32(row.current_replicas);
    Ok(json!({"limit": limit(&behavior, current, &row.history.into(), NOW).as_i32()}))
}

/// The same policies in either direction.
pub(crate) fn longest_period(row: Periods) -> Fallible<Value> {
    let policies = row.periods_s.into_iter().map(|period| ScalingPolicy {
        kind: PolicyKind::Pods,
        value: 1,
        period: SignedDuration::from_secs(period),
    });
    let rules = ScalingRules {
        policies: Some(policies.collect()),
        ..ScalingRules::default()
    };
    let behavior = Behavior {
        scale_up: rules.clone(),
        scale_down: rules,
    };
    let [up, down] = [Direction::Up, Direction::Down].map(|way| behavior.longest_period(way));
    same("down", down, up)?;
    Ok(json!({"period_s": up.as_secs()}))
}

/// The same rules and events in either direction.
pub(crate) fn store_scale_event(row: Scaled) -> Fallible<Value> {
    let rules = row.scaling_rules;
    let behavior = rules.map(|rules| behavior(&json!({"scaleUp": rules, "scaleDown": rules})));
    let behavior = behavior.transpose()?;
    let events = events(row.previous_events);
    let log = Log {
        scale_up: events.clone(),
        scale_down: events,
        ..Log::default()
    };
    let (low, high) = (
        Replicas::from_i32(10),
        Replicas::from_i32(10 + row.replica_change),
    );
    let up = record_scale(log.clone(), behavior.as_ref(), low, high, NOW);
    let down = record_scale(log.clone(), behavior.as_ref(), high, low, NOW);
    let [changed_up, changed_down] =
        [Direction::Up, Direction::Down].map(|way| log.changed(way, seconds(60.0), NOW));
    same("change before", changed_down, changed_up)?;
    same("events down", &down.scale_down, &up.scale_up)?;
    same("untouched by up", &up.scale_down, &log.scale_down)?;
    same("untouched by down", &down.scale_up, &log.scale_up)?;
    Ok(json!({"change_in_last_60s": changed_up, "events_after": events_after(&up.scale_up)}))
}
