//! The conditions of a decision: type, status, reason, message.
//!
//! Transition times are not decided here: the reporter takes them from the status written before.

use super::decision::{Condition, ConditionKind, Decision};
use super::limit::Limit;
use crate::hpa::ConditionReason;
use crate::observation::Status;
use crate::proposal::{Proposal, Reason, Source, of_source};
use crate::workload::{SpecPart, Workload};

/// All conditions of a decision, in the order of [`ConditionKind::ALL`].
pub(super) fn conditions(workload: &Workload, decision: &Decision) -> Vec<Condition> {
    let all = [
        Some(ready(workload, decision)),
        prediction(workload, decision),
        cron(workload, decision),
        Some(able_to_scale(decision)),
        Some(scaling_active(decision)),
        Some(scaling_limited(decision)),
    ];
    all.into_iter().flatten().collect()
}

fn ready(workload: &Workload, decision: &Decision) -> Condition {
    let kind = ConditionKind::Ready;
    if decision.limit == Some(Limit::InvalidBounds) {
        let reason = Limit::InvalidBounds.as_str();
        return Condition::new(kind, Status::False, reason, decision.message());
    }
    let broken: Vec<_> = workload
        .problems
        .iter()
        .filter_map(|problem| match &problem.part {
            SpecPart::Field(path) => Some((problem.reason, format!("{path}: {}", problem.message))),
            SpecPart::Cron(_) => None,
        })
        .collect();
    if let Some((reason, _)) = broken.first() {
        let message = join(broken.iter().map(|b| &*b.1));
        return Condition::new(kind, Status::False, reason.as_str(), message);
    }
    let reason = workload.course().ready;
    Condition::new(kind, Status::True, reason, decision.message())
}

fn prediction(workload: &Workload, decision: &Decision) -> Option<Condition> {
    workload.floor.prediction.as_ref()?;
    let forecasts: Vec<_> = of_source(&decision.proposals, Source::Forecast).collect();
    // A metric that cannot be forecast is no failure if another one can.
    let has_load = forecasts.iter().any(|p| p.reason != Reason::NotDivided);
    let absent: Vec<_> = forecasts
        .iter()
        .filter(|p| p.replicas.is_none() && (!has_load || p.reason != Reason::NotDivided))
        .copied()
        .collect();
    let (status, reason, message) = match absent.first() {
        Some(first) if absent.iter().all(|p| p.reason == Reason::Pending) => {
            // Not a failure: the forecaster has not had its turn yet.
            (Status::Unknown, first.reason, reasons(&absent))
        }
        Some(first) => (Status::False, first.reason, reasons(&absent)),
        None if forecasts.is_empty() => (
            Status::Unknown,
            Reason::Pending,
            "the first forecast is being computed".to_owned(),
        ),
        None => {
            let mut remarks = forecasts.iter().filter_map(|p| p.details.as_ref()?.remark);
            let notes = forecasts
                .iter()
                .filter(|p| !p.message.is_empty())
                .map(|p| format!("; {}: {}", p.name, p.message));
            (
                Status::True,
                remarks.next().unwrap_or(Reason::ForecastReady),
                format!("all forecasts are available{}", notes.collect::<String>()),
            )
        }
    };
    Some(Condition::new(
        ConditionKind::PredictionReady,
        status,
        reason.as_str(),
        message,
    ))
}

fn cron(workload: &Workload, decision: &Decision) -> Option<Condition> {
    if workload.floor.windows.is_empty() && workload.cron_problems().next().is_none() {
        return None;
    }
    let crons: Vec<_> = of_source(&decision.proposals, Source::Cron).collect();
    let broken: Vec<_> = crons
        .iter()
        .filter(|p| !matches!(p.reason, Reason::WindowActive | Reason::NoActiveWindow))
        .copied()
        .collect();
    let active: Vec<_> = crons
        .iter()
        .filter(|p| p.replicas.is_some())
        .copied()
        .collect();
    let (status, reason, message) = match (broken.first(), active.is_empty()) {
        (Some(first), _) => (Status::False, first.reason, reasons(&broken)),
        (None, false) => {
            let names = join(active.iter().map(|p| p.name.as_str()));
            (
                Status::True,
                Reason::WindowActive,
                format!("open cron windows: {names}"),
            )
        }
        (None, true) => (
            Status::True,
            Reason::NoActiveWindow,
            "no cron window is open".to_owned(),
        ),
    };
    Some(Condition::new(
        ConditionKind::CronReady,
        status,
        reason.as_str(),
        message,
    ))
}

fn able_to_scale(decision: &Decision) -> Condition {
    let reason = match decision.limit {
        Some(
            limit @ (Limit::ScaleUpStabilized | Limit::ScaleDownStabilized | Limit::HistoryLost),
        ) => limit.as_str(),
        _ => "ReadyForNewScale",
    };
    // Never false here: the controller reports a scale that cannot be read or written.
    Condition::new(
        ConditionKind::AbleToScale,
        Status::True,
        reason,
        decision.limit_clause(),
    )
}

fn scaling_active(decision: &Decision) -> Condition {
    let kind = ConditionKind::ScalingActive;
    let observed = decision.observed.as_ref();
    let own = observed.and_then(|observed| observed.scaling_active);
    match (own, decision.limit) {
        (_, Some(Limit::Paused)) => {
            let reason = ConditionReason::ScalingDisabled.as_str();
            Condition::new(kind, Status::False, reason, decision.message())
        }
        (Some(own), _) => {
            let absent: Vec<_> = of_source(&decision.proposals, Source::Observed)
                .filter(|p| p.replicas.is_none())
                .collect();
            let status = match own {
                ConditionReason::ValidMetricFound => Status::True,
                _ => Status::False,
            };
            Condition::new(kind, status, own.as_str(), reasons(&absent))
        }
        (None, _) if observed.is_some() => {
            let message =
                "metrics are not read while the count is outside minReplicas and maxReplicas"
                    .to_owned();
            Condition::new(kind, Status::Unknown, Reason::NotComputed.as_str(), message)
        }
        (None, _) => {
            let reason = decision
                .winning()
                .map_or(Reason::NoActiveWindow, |(winner, _)| winner.reason);
            Condition::new(kind, Status::True, reason.as_str(), String::new())
        }
    }
}

fn scaling_limited(decision: &Decision) -> Condition {
    let kind = ConditionKind::ScalingLimited;
    let limit = decision.limit.filter(|limit| {
        matches!(
            limit,
            Limit::TooFewReplicas
                | Limit::TooManyReplicas
                | Limit::ScaleUpLimit
                | Limit::ScaleDownLimit
        )
    });
    let within = ConditionReason::DesiredWithinRange.as_str();
    match limit {
        Some(limit) => Condition::new(kind, Status::True, limit.as_str(), decision.limit_clause()),
        None => Condition::new(kind, Status::False, within, String::new()),
    }
}

/// `name: message` of each proposal without a count.
fn reasons(absent: &[&Proposal]) -> String {
    absent
        .iter()
        .map(|p| match p.message.as_str() {
            "" => format!("{}: {}", p.name, p.reason),
            message => format!("{}: {message}", p.name),
        })
        .collect::<Vec<_>>()
        .join("; ")
}

fn join<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join("; ")
}
