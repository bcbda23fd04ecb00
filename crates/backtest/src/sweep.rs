//! The same minutes with other quantiles of the forecast, two runs at a time.

use std::{
    ops::ControlFlow,
    str::FromStr,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use foretide_domain::sim::Score;
use serde::Serialize;

use crate::{
    data,
    runs::{RunError, Runs, Watch, real},
};

/// Number of runs at a time.
const WORKERS: usize = 2;
/// Most quantiles of a sweep: more would hardly differ from each other.
const MOST: usize = 20;
/// Quantiles that the API accepts.
const RANGE: std::ops::RangeInclusive<f64> = 0.5..=0.999;

/// The quantiles of a sweep: some of 0.5 to 0.999, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles(Vec<f64>);

/// The score with one quantile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepRun {
    /// The quantile.
    pub quantile: f64,
    /// Totals over the evaluated minutes.
    #[serde(flatten, serialize_with = "data::score")]
    pub score: Score,
    /// Replica-hours more than those of the plain HPA, in percent.
    #[serde(rename = "replicaHoursPercent")]
    pub more_percent: Option<f64>,
}

/// Report of a worker.
enum Event {
    /// One more hundredth of a run is done.
    Hundredth,
    /// The run of the quantile with this index has ended.
    Ended(usize, SweepRun),
}

// === impl Quantiles ===

impl Quantiles {
    /// Returns the numbers of the quantiles.
    pub fn to_vec(&self) -> Vec<f64> {
        self.0.clone()
    }
}

impl TryFrom<Vec<f64>> for Quantiles {
    type Error = String;

    fn try_from(mut quantiles: Vec<f64>) -> Result<Self, String> {
        let outside = quantiles.iter().find(|quantile| !RANGE.contains(quantile));
        if let Some(outside) = outside {
            return Err(format!(
                "expected quantiles from 0.5 to 0.999, got {outside}"
            ));
        }
        quantiles.sort_by(f64::total_cmp);
        quantiles.dedup();
        if (1..=MOST).contains(&quantiles.len()) {
            return Ok(Self(quantiles));
        }
        let count = quantiles.len();
        Err(format!("expected 1 to {MOST} quantiles, got {count}"))
    }
}

impl FromStr for Quantiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split(',').map(|quantile| quantile.trim().parse());
        let numbers: Result<Vec<f64>, _> = parsed.collect();
        numbers
            .map_err(|_| format!("expected numbers such as 0.8,0.9,0.95, got {text:?}"))?
            .try_into()
    }
}

/// One run per quantile, in their order.
pub(crate) fn runs(
    runs: Runs<'_>,
    quantiles: &[f64],
    watch: &mut Watch<'_>,
) -> Result<Vec<SweepRun>, RunError> {
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, events) = mpsc::channel();
    let mut ended = Vec::new();
    thread::scope(|scope| {
        for _ in 0..WORKERS.min(quantiles.len()) {
            let sender = sender.clone();
            let (next, stopped) = (&next, &stopped);
            scope.spawn(move || {
                let take = || {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    Some((index, *quantiles.get(index)?))
                };
                while let Some((index, quantile)) = take() {
                    let Ok(run) = run(runs, quantile, stopped, &sender) else {
                        return;
                    };
                    // The receiver waits for the last sender.
                    let _received = sender.send(Event::Ended(index, run)).is_ok();
                }
            });
        }
        // The events end with the last sender; this one would keep them open.
        drop(sender);
        let mut hundredths = 0.0;
        for event in events {
            match event {
                Event::Hundredth => hundredths += 1.0,
                Event::Ended(index, run) => ended.push((index, run)),
            }
            if watch(hundredths / (100.0 * real(quantiles.len()))).is_break() {
                stopped.store(true, Ordering::Relaxed);
            }
        }
    });
    if stopped.into_inner() {
        return Err(RunError::Stopped);
    }
    ended.sort_by_key(|(index, _)| *index);
    Ok(ended.into_iter().map(|(_, run)| run).collect())
}

fn run(
    runs: Runs<'_>,
    quantile: f64,
    stopped: &AtomicBool,
    events: &mpsc::Sender<Event>,
) -> Result<SweepRun, RunError> {
    let mut score = Score::default();
    let mut told = 0.0;
    let mut watch = |done: f64| {
        while told < (done * 100.0).floor() {
            told += 1.0;
            let _received = events.send(Event::Hundredth).is_ok();
        }
        if stopped.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    runs.replay(runs.with_quantile(quantile), &mut watch, |run| {
        let (minute, decision) = run.minute();
        score.add(&minute, &decision);
    })?;
    Ok(SweepRun {
        quantile,
        score,
        more_percent: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_sorted_and_within_the_range_of_the_api() {
        for (text, expected) in [
            ("0.9, 0.5,0.9", Ok(vec![0.5, 0.9])),
            ("0.4", Err("expected quantiles from 0.5 to 0.999, got 0.4")),
            ("1", Err("expected quantiles from 0.5 to 0.999, got 1")),
            ("NaN", Err("expected quantiles from 0.5 to 0.999, got NaN")),
            ("", Err("expected numbers such as 0.8,0.9,0.95, got \"\"")),
            (
                "high",
                Err("expected numbers such as 0.8,0.9,0.95, got \"high\""),
            ),
        ] {
            let found = text.parse::<Quantiles>().map(|quantiles| quantiles.0);
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        }
        let many: Vec<_> = (0..21).map(|i| 0.5 + f64::from(i) / 100.0).collect();
        let error = Quantiles::try_from(many).unwrap_err();
        assert_eq!(error, "expected 1 to 20 quantiles, got 21");
    }
}
