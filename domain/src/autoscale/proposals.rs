//! Proposals of all sources: a count with its numbers, or none with its reason.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::context::Context;
use super::decision::DecidedWindow;
use super::history::History;
use super::published::{CronInputs, PublishedMetric, as_read_by_hpa, base_units};
use crate::Replicas;
use crate::division::{self, Division};
use crate::forecast::{self, ForecastReading, Refused};
use crate::hpa::{Basis, Held, Hpa, MetricProposal, MetricSpec, Reconciliation, Target, reconcile};
use crate::observation::{Cause, Unavailable};
use crate::proposal::{Proposal, Reason, Source, Unit, of_source};
use crate::words::counted;

/// The proposals of all sources.
pub(super) struct Proposals {
    /// The observed lane; absent without metrics.
    pub(super) observed: Option<Reconciliation>,
    /// Every proposal, in the order of [`Source::ALL`].
    pub(super) all: Vec<Proposal>,
    /// The cron windows.
    pub(super) windows: Vec<DecidedWindow>,
    /// The largest proposal of the other sources; none where they are metrics of the observed lane.
    pub(super) floor: Option<Replicas>,
    /// Forecasts and crons as metrics of the observed lane, in mode Metric.
    pub(super) published: Vec<PublishedMetric>,
}

impl Proposals {
    /// The proposal that wins; see [`Winner`](super::Winner). `last` is the source of the last winner.
    pub(super) fn winner(&self, last: Option<Source>) -> Option<(&Proposal, Replicas)> {
        let winner = largest(&self.all, last)?;
        Some((winner, winner.replicas?))
    }
}

/// The largest of some proposals. Of equal ones it is one of the source `preferred`, which asked for the count first;
/// else one that is not only held at the count; else the first.
pub(super) fn largest<'a>(
    proposals: impl IntoIterator<Item = &'a Proposal>,
    preferred: Option<Source>,
) -> Option<&'a Proposal> {
    proposals
        .into_iter()
        .filter(|p| p.replicas.is_some())
        .reduce(|best, next| {
            if rank(next, preferred) > rank(best, preferred) {
                next
            } else {
                best
            }
        })
}

fn rank(proposal: &Proposal, preferred: Option<Source>) -> (Option<Replicas>, bool, bool) {
    let is_held = proposal.asked < proposal.replicas && proposal.asked.is_some();
    (
        proposal.replicas,
        Some(proposal.source) == preferred,
        !is_held,
    )
}

impl Context<'_> {
    /// The proposals of every source; the history keeps what each forecast proposed.
    pub(super) fn propose(&self, history: &mut History) -> Proposals {
        let windows = self.windows();
        // The sources of the floor lane, in the order of `Source::ALL`.
        let mut asked = self.forecast(history);
        asked.extend(self.cron(&windows));
        let (floor, published) = if self.course.publishes {
            (None, self.published(&asked))
        } else {
            let counts = asked.iter().filter_map(|it| it.replicas);
            (counts.max(), Vec::new())
        };
        let observed = self.observed_lane_with(&published, history);
        let mut all = self.observed(observed.as_ref());
        all.extend(asked);
        Proposals {
            observed,
            all,
            windows,
            floor,
            published,
        }
    }

    /// The metrics that the child reads in addition to those of the spec.
    fn published(&self, asked: &[Proposal]) -> Vec<PublishedMetric> {
        let cron = self.workload.asks_without_metrics().then(|| {
            PublishedMetric::of_crons(CronInputs {
                open: asked
                    .iter()
                    .filter(|asked| !asked.source.is_of_metrics())
                    .filter_map(|asked| asked.replicas)
                    .max(),
                min: self.bounds().min,
                current: Some(self.current()),
                has_metrics: !self.workload.metrics.is_empty(),
            })
        });
        let forecasts = of_source(asked, Source::Forecast).filter_map(PublishedMetric::of_forecast);
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
            // One reading per metric, so that those of the published ones follow.
            readings.resize_with(metrics.len(), || {
                Err(Unavailable::new(Cause::NotRead, "the metric was not read"))
            });
            readings.extend(published.iter().map(|metric| Ok(metric.measured())));
            let published = published.iter().map(PublishedMetric::spec);
            metrics.to_mut().extend(published);
        }
        if metrics.is_empty() {
            return None;
        }
        let hpa = Hpa {
            metrics: &metrics,
            ..self.workload.hpa(self.bounds())
        };
        let lane = reconcile(&hpa, &observation, &history.log, self.settings, self.now);
        Some(lane)
    }

    fn observed(&self, observed: Option<&Reconciliation>) -> Vec<Proposal> {
        self.workload
            .metrics
            .iter()
            .enumerate()
            .map(|(i, metric)| {
                let outcome = observed.and_then(|observed| observed.proposals.get(i));
                observed_proposal(metric, outcome)
            })
            .collect()
    }

    fn forecast(&self, history: &mut History) -> Vec<Proposal> {
        let on = self.workload.floor.prediction.is_some();
        history.division = if on {
            self.division(&history.division)
        } else {
            BTreeMap::new()
        };
        history.surplus = division::surplus(&self.inputs.observation, history.surplus, self.now);
        let proposals: Vec<_> = self
            .inputs
            .forecasts
            .iter()
            .filter(|_| on)
            .map(|reading| self.forecast_of(reading, history))
            .collect();
        let held = proposals.iter().filter_map(|proposal| {
            // A forecaster that has just started has not had the chance to propose, and one that waits for the pods
            // goes on from where it was.
            let before = history.forecast_held.get(&proposal.name).copied();
            let before = before
                .filter(|_| matches!(proposal.reason, Reason::Pending | Reason::PodsChanging));
            Some((proposal.name.clone(), proposal.replicas.or(before)?))
        });
        history.forecast_held = held.collect();
        proposals
    }

    /// Division of each metric's total among pods, after this observation; of equal metrics the first counts.
    fn division(&self, before: &BTreeMap<String, Division>) -> BTreeMap<String, Division> {
        self.workload
            .metrics
            .iter()
            .enumerate()
            .rev()
            .map(|(index, metric)| {
                let name = metric.identifier();
                let division = before
                    .get(&name)
                    .cloned()
                    .unwrap_or_else(|| Division::presumed(metric))
                    .observed(metric, index, &self.inputs.observation, self.now);
                (name, division)
            })
            .collect()
    }

    fn forecast_of(&self, reading: &ForecastReading, history: &History) -> Proposal {
        let held = history.forecast_held.get(&reading.name).copied();
        // A metric is not held at a count: the rule of the HPA applies.
        let (proposal, floor_held) = if self.course.publishes {
            (forecast::propose_peak(&as_read_by_hpa(reading)), None)
        } else {
            (forecast::propose(reading, held), held)
        };
        let division = history.division.get(&reading.name);
        if division.is_some_and(|division| !division.divides()) {
            return refused(proposal, Refused::not_divided());
        }
        if proposal.reason == Reason::NotDivided {
            // The total was seen to divide after the forecaster was asked.
            return refused(
                proposal,
                Refused::new(Reason::Pending, "the first forecast is being computed"),
            );
        }
        let Some(message) = self.waits_for_pods(&reading.name, history) else {
            return proposal;
        };
        match (proposal.replicas, held) {
            (Some(asked), _) if floor_held.is_some_and(|held| asked > held) => Proposal {
                replicas: floor_held,
                asked: Some(asked),
                reason: Reason::PodsChanging,
                message,
                ..proposal
            },
            (Some(asked), held) if held.is_none_or(|held| asked > held) => {
                refused(proposal, Refused::new(Reason::PodsChanging, message))
            }
            // The newest minutes are missing because they are not learned.
            (None, _) if matches!(proposal.reason, Reason::StaleHistory | Reason::Expired) => {
                refused(proposal, Refused::new(Reason::PodsChanging, message))
            }
            _ => proposal,
        }
    }

    /// Reason for which a forecast of a metric raises nothing now, if it lies in the pods.
    fn waits_for_pods(&self, metric: &str, history: &History) -> Option<String> {
        let observation = &self.inputs.observation;
        let spec = self
            .workload
            .metrics
            .iter()
            .find(|spec| spec.identifier() == metric)?;
        if history.surplus.is_some() && spec.is_of_pods() {
            return Some(format!(
                "more pods run than the {} of the spec, as in a rolling update, or did within five minutes: until they no \
                 longer count, the forecast raises nothing and learns nothing",
                observation.scale.spec
            ));
        }
        let division = history.division.get(metric)?;
        if !division.is_settling(spec, observation, self.now) {
            return None;
        }
        let message = "the number of pods has just changed: the forecast raises nothing until it is seen what that did to the total";
        Some(message.to_owned())
    }

    fn windows(&self) -> Vec<DecidedWindow> {
        self.workload
            .floor
            .windows
            .iter()
            .map(|window| DecidedWindow {
                name: window.name().to_owned(),
                zone: window.zone().clone(),
                state: window.state(self.now),
            })
            .collect()
    }

    fn cron(&self, windows: &[DecidedWindow]) -> Vec<Proposal> {
        let usable = self.workload.floor.windows.iter().zip(windows).map(
            |(window, DecidedWindow { name, state, .. })| {
                let target = Replicas::new(window.target_replicas());
                let closed = state.problem.map_or(Reason::NoActiveWindow, Reason::from);
                let reason = if state.active {
                    Reason::WindowActive
                } else {
                    closed
                };
                Proposal {
                    replicas: state.active.then_some(target),
                    ..Proposal::none(Source::Cron, name.clone(), reason, String::new())
                }
            },
        );
        let broken = self.workload.cron_problems().map(|(name, problem)| {
            let message = problem.message.clone();
            Proposal::none(Source::Cron, name.to_owned(), problem.reason, message)
        });
        usable.chain(broken).collect()
    }
}

/// The same proposal without a count.
fn refused(proposal: Proposal, refused: Refused) -> Proposal {
    Proposal {
        replicas: None,
        asked: None,
        reason: refused.reason,
        message: refused.message,
        details: None,
        ..proposal
    }
}

/// One metric's outcome in the observed lane as a proposal; `outcome` is absent if the lane did not compute it.
fn observed_proposal(
    metric: &MetricSpec,
    outcome: Option<&Result<MetricProposal, Unavailable>>,
) -> Proposal {
    match outcome {
        Some(Ok(proposal)) => {
            let (reason, message) = grounds(&proposal.basis, proposal.replicas);
            let absent = without_count(metric, reason, message);
            Proposal {
                replicas: Some(proposal.replicas),
                asked: Some(proposal.basis.asked).filter(|asked| *asked != proposal.replicas),
                value: value(proposal, absent.unit),
                ..absent
            }
        }
        Some(Err(unavailable)) => {
            let reason = unavailable.reason.into();
            without_count(metric, reason, unavailable.message.clone())
        }
        None => without_count(metric, Reason::NotComputed, String::new()),
    }
}

fn without_count(metric: &MetricSpec, reason: Reason, message: String) -> Proposal {
    let (unit, target) = target(metric);
    Proposal {
        target,
        unit,
        ..Proposal::none(Source::Observed, metric.identifier(), reason, message)
    }
}

/// Reason for the count of a metric: the value alone, the tolerance, or the assumptions about pods without metrics.
fn grounds(basis: &Basis, replicas: Replicas) -> (Reason, String) {
    match (basis.held, basis.filled_ratio) {
        _ if basis.undelivered > 0 => (Reason::PodsWithoutMetrics, uncounted(basis)),
        (_, Some(_)) if basis.asked != replicas => (Reason::PodsWithoutMetrics, uncounted(basis)),
        (Some(Held::WithinTolerance), None) => (Reason::WithinTolerance, String::new()),
        _ => (Reason::ValidMetricFound, String::new()),
    }
}

/// The pods whose metrics are assumed, such as `3 pods have no metrics yet`. Pods that are not ready are assumed to be
/// idle when scaling up, and do not count when scaling down.
fn uncounted(basis: &Basis) -> String {
    let unready = if basis.ratio > 1.0 { basis.unready } else { 0 };
    [
        group(basis.missing, "has no metrics yet", "have no metrics yet"),
        group(unready, "is not ready yet", "are not ready yet"),
        group(
            basis.undelivered,
            "is not seen: not listed yet, or too large to keep",
            "are not seen: not listed yet, or too large to keep",
        ),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(" and ")
}

fn group(pods: u32, one: &str, many: &str) -> Option<String> {
    let verb = if pods == 1 { one } else { many };
    (pods > 0).then(|| format!("{} {verb}", counted(pods, "pod")))
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
