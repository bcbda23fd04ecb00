//! What each source proposes: a count with its numbers, or none with its reason.

use std::borrow::Cow;

use super::context::Context;
use super::history::History;
use super::published::{CronInputs, PublishedMetric, as_read_by_hpa, base_units};
use crate::Replicas;
use crate::cron::WindowState;
use crate::forecast::{self, ForecastReading};
use crate::hpa::{Behavior, Hpa, MetricProposal, MetricSpec, Reconciliation, Target, reconcile};
use crate::observation::{Cause, Unavailable};
use crate::proposal::{Proposal, Reason, Source, Unit};

/// The proposals of all sources.
pub(super) struct Proposals {
    /// The observed lane; absent without metrics.
    pub(super) observed: Option<Reconciliation>,
    /// Every proposal, in the order observed, forecast, cron.
    pub(super) all: Vec<Proposal>,
    /// The cron windows by name.
    pub(super) windows: Vec<(String, WindowState)>,
    /// The largest of forecast and cron; none where they are metrics of the observed lane.
    pub(super) floor: Option<Replicas>,
    /// Forecasts and crons as metrics of the observed lane, in mode Metric.
    pub(super) published: Vec<PublishedMetric>,
}

impl Proposals {
    /// The largest proposal, the first of equals.
    pub(super) fn winner(&self) -> Option<(&Proposal, Replicas)> {
        let present = self.all.iter().filter_map(|p| Some((p, p.replicas?)));
        // Of equal counts the first wins, in the order observed, forecast, cron.
        present.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }
}

impl Context<'_> {
    /// The proposals of every source; the history keeps what each forecast proposed.
    pub(super) fn propose(&self, history: &mut History) -> Proposals {
        let forecasts = self.forecast(history);
        let windows = self.windows();
        let crons = self.cron(&windows);
        let published = self.published(&forecasts, &crons);
        let observed = self.observed_lane_with(&published, history);
        let mut all = self.observed(observed.as_ref());
        let floor_sources = forecasts.iter().chain(&crons);
        let floor_sources = floor_sources.filter(|_| !self.publishes());
        let floor = floor_sources.filter_map(|proposal| proposal.replicas).max();
        all.extend(forecasts);
        all.extend(crons);
        Proposals {
            observed,
            all,
            windows,
            floor,
            published,
        }
    }

    /// What the child reads besides the metrics of the spec: nothing but in mode Metric.
    fn published(&self, forecasts: &[Proposal], crons: &[Proposal]) -> Vec<PublishedMetric> {
        if !self.publishes() {
            return Vec::new();
        }
        let cron = self.workload.has_crons().then(|| {
            PublishedMetric::of_crons(CronInputs {
                open: crons.iter().filter_map(|cron| cron.replicas).max(),
                min: self.bounds().min,
                current: Some(self.current()),
                has_metrics: !self.workload.metrics.is_empty(),
            })
        });
        let forecasts = forecasts.iter().filter_map(PublishedMetric::of_forecast);
        forecasts.chain(cron).collect()
    }

    /// The observed lane over the metrics of the spec and those that are published; absent without either.
    fn observed_lane_with(
        &self,
        published: &[PublishedMetric],
        history: &History,
    ) -> Option<Reconciliation> {
        let mut metrics = Cow::Borrowed(&*self.workload.metrics);
        let mut observation = Cow::Borrowed(&self.inputs.observation);
        if !published.is_empty() {
            let readings = &mut observation.to_mut().readings;
            let unread = || Err(Unavailable::new(Cause::NotRead, "the metric was not read"));
            // One reading per metric, so that those of the published ones follow.
            readings.resize_with(metrics.len(), unread);
            readings.extend(published.iter().map(|metric| Ok(metric.measured())));
            let published = published.iter().map(PublishedMetric::spec);
            metrics.to_mut().extend(published);
        }
        let hpa = Hpa {
            metrics: &metrics,
            ..self.workload.hpa(self.bounds())
        };
        let lane = || reconcile(&hpa, &observation, &history.log, self.settings, self.now);
        (!metrics.is_empty()).then(lane)
    }

    fn observed(&self, observed: Option<&Reconciliation>) -> Vec<Proposal> {
        let metrics = self.workload.metrics.iter().enumerate();
        metrics
            .map(|(i, metric)| {
                let outcome = observed.and_then(|observed| observed.proposals.get(i));
                observed_proposal(metric, outcome)
            })
            .collect()
    }

    fn forecast(&self, history: &mut History) -> Vec<Proposal> {
        let on = self.workload.prediction.is_some();
        let tolerance = Behavior::tolerance(self.behavior(), self.settings);
        let readings = self.inputs.forecasts.iter().filter(|_| on);
        let propose = |reading: &ForecastReading| {
            if self.publishes() {
                // The tolerance of the HPA applies.
                return forecast::propose(&as_read_by_hpa(reading), None, tolerance);
            }
            let held = history.forecast_held.get(&reading.name).copied();
            forecast::propose(reading, held, tolerance)
        };
        let proposals: Vec<_> = readings.map(propose).collect();
        let held = proposals
            .iter()
            .filter_map(|p| Some((p.name.clone(), p.replicas?)));
        history.forecast_held = held.collect();
        proposals
    }

    fn windows(&self) -> Vec<(String, WindowState)> {
        let windows = self.workload.windows.iter();
        windows
            .map(|window| (window.name().to_owned(), window.state(self.now)))
            .collect()
    }

    fn cron(&self, states: &[(String, WindowState)]) -> Vec<Proposal> {
        let usable = self
            .workload
            .windows
            .iter()
            .zip(states)
            .map(|(window, (name, state))| {
                let target = Replicas::new(window.target_replicas());
                let closed = state.problem.map_or(Reason::NoActiveWindow, Reason::from);
                let reason = if state.active {
                    Reason::WindowActive
                } else {
                    closed
                };
                cron_proposal(name, state.active.then_some(target), reason, String::new())
            });
        let broken = self.workload.cron_problems().map(|(name, problem)| {
            cron_proposal(name, None, problem.reason, problem.message.clone())
        });
        usable.chain(broken).collect()
    }
}

fn cron_proposal(
    name: &str,
    replicas: Option<Replicas>,
    reason: Reason,
    message: String,
) -> Proposal {
    Proposal {
        source: Source::Cron,
        name: name.to_owned(),
        replicas,
        value: None,
        target: None,
        unit: Unit::Plain,
        reason,
        message,
        details: None,
    }
}

/// One metric's outcome in the observed lane as a proposal; `outcome` is absent if the lane did not compute it.
fn observed_proposal(
    metric: &MetricSpec,
    outcome: Option<&Result<MetricProposal, Unavailable>>,
) -> Proposal {
    let (unit, target) = target(metric);
    let absent = |reason, message: &str| Proposal {
        source: Source::Observed,
        name: metric.identifier(),
        replicas: None,
        value: None,
        target,
        unit,
        reason,
        message: message.to_owned(),
        details: None,
    };
    match outcome {
        Some(Ok(proposal)) => Proposal {
            replicas: Some(proposal.replicas),
            value: value(proposal, unit),
            ..absent(Reason::ValidMetricFound, "")
        },
        Some(Err(unavailable)) => absent(unavailable.reason.into(), &unavailable.message),
        None => absent(Reason::NotComputed, ""),
    }
}

fn target(metric: &MetricSpec) -> (Unit, Option<f64>) {
    let unit = Unit::of_metric(&metric.identifier());
    match metric.target() {
        Target::Utilization(percent) => (Unit::Percent, Some(f64::from(percent))),
        Target::AverageValue(milli) | Target::Value(milli) => (unit, Some(base_units(milli))),
        Target::Unusable => (unit, None),
    }
}

fn value(proposal: &MetricProposal, unit: Unit) -> Option<f64> {
    let value = proposal.value;
    match unit {
        Unit::Percent => value.average_utilization.map(f64::from),
        _ => value.average_value.or(value.value).map(base_units),
    }
}
