//! What every source asks for: a proposal with its numbers, or none with its reason.

use super::Step;
use super::history::History;
use crate::domain::Replicas;
use crate::domain::cron::WindowState;
use crate::domain::explain;
use crate::domain::forecast::{self, ForecastReading};
use crate::domain::hpa::{Behavior, Pass, reconcile};
use crate::domain::proposal::{Proposal, Reason, Source, Unit};

/// What the sources ask for.
pub(super) struct Asked {
    /// The observed lane; absent without metrics.
    pub(super) pass: Option<Pass>,
    /// Observed, forecast, cron.
    pub(super) proposals: Vec<Proposal>,
    /// The cron windows by name.
    pub(super) windows: Vec<(String, WindowState)>,
    /// The largest of forecast and cron.
    pub(super) raw: Option<Replicas>,
}

impl Asked {
    /// The largest proposal, the first of equals.
    pub(super) fn winner(&self) -> Option<(&Proposal, Replicas)> {
        let present = self.proposals.iter().filter_map(|p| Some((p, p.replicas?)));
        present.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }
}

impl Step<'_> {
    /// Asks every source, and keeps what each forecast proposed.
    pub(super) fn ask(&self, history: &mut History) -> Asked {
        let pass = (!self.workload.metrics.is_empty()).then(|| {
            let hpa = self.workload.hpa(self.bounds());
            reconcile(
                &hpa,
                &self.seen.observation,
                &history.log,
                self.settings,
                self.now,
            )
        });
        let mut proposals = self.observed(pass.as_ref());
        let forecasts = self.forecast(history);
        let windows = self.windows();
        let crons = self.cron(&windows);
        let floor_sources = forecasts.iter().chain(&crons);
        let raw = floor_sources.filter_map(|proposal| proposal.replicas).max();
        proposals.extend(forecasts);
        proposals.extend(crons);
        Asked {
            pass,
            proposals,
            windows,
            raw,
        }
    }

    fn observed(&self, pass: Option<&Pass>) -> Vec<Proposal> {
        let metrics = self.workload.metrics.iter().enumerate();
        let outcome = |i| pass.and_then(|pass: &Pass| pass.proposals.get(i));
        metrics
            .map(|(i, metric)| explain::observed(metric, outcome(i)))
            .collect()
    }

    fn forecast(&self, history: &mut History) -> Vec<Proposal> {
        let on = self.workload.prediction.is_some();
        let tolerance = Behavior::tolerance(self.behavior(), self.settings);
        let readings = self.seen.forecasts.iter().filter(|_| on);
        let propose = |reading: &ForecastReading| {
            forecast::propose(
                reading,
                history.forecast_held.get(&reading.name).copied(),
                tolerance,
            )
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
        grounds: None,
    }
}
