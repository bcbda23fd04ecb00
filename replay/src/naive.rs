//! The naive candidates: the newest minute, and repetitions of earlier days.

use crate::DAY;
use crate::average::median;
use crate::candidate::{Answer, BEYOND, Candidate, highest, level};
use crate::history::Known;

/// The number of seasons of the statistics over several.
const SEASONS: usize = 7;

/// Minutes over which the current level is compared with yesterday's, and the bounds of that ratio.
const RATIO_SPAN: usize = 15;
const RATIO_BOUNDS: (f64, f64) = (0.2, 5.0);

/// A candidate without state: a function of the demand so far.
///
/// # Shape
/// Each forecasts the highest demand of minutes `t..=t + window`, from what is known before `t`.
#[derive(Debug, Clone, Copy)]
pub struct NaiveCandidate {
    name: &'static str,
    window: usize,
    forecast: fn(Known<'_>, usize) -> Option<f64>,
}

// === impl NaiveCandidate ===

impl NaiveCandidate {
    /// The name of the autoscaler without a forecast: its forecast is the minute that it reads anyway.
    pub const HPA: &'static str = "hpa";

    /// All naive candidates: `hpa` (the last minute; a margin on it is a lower target), the same window yesterday and
    /// a week ago, yesterday's window scaled to today's level, and the median and maximum of the last seven days.
    /// `start_up` is in minutes.
    pub fn all(start_up: usize) -> [Self; 6] {
        let plain = |name, forecast| Self {
            name,
            window: start_up + BEYOND,
            forecast,
        };
        [
            plain(Self::HPA, |known, _| known.minutes.last().copied()),
            plain("snaive-day", |known, window| {
                ago(known.history, window, DAY)
            }),
            plain("snaive-week", |known, window| {
                ago(known.history, window, 7 * DAY)
            }),
            plain("snaive-day*level", |known, window| {
                yesterday_at_level(known.history, window)
            }),
            plain("median-7d", |known, window| {
                median(seasons(known.history, window))
            }),
            plain("max-7d", |known, window| {
                seasons(known.history, window).into_iter().reduce(f64::max)
            }),
        ]
    }
}

impl Candidate for NaiveCandidate {
    fn name(&self) -> &'static str {
        self.name
    }

    fn window(&self) -> usize {
        self.window
    }

    fn at(&mut self, known: Known<'_>) -> Vec<Answer> {
        let forecast = (self.forecast)(known, self.window);
        forecast.map(Answer::from).into_iter().collect()
    }
}

/// The highest demand of the same window, `minutes` minutes ago.
fn ago(known: &[f64], window: usize, minutes: usize) -> Option<f64> {
    highest(known, known.len().checked_sub(minutes)?, window)
}

fn yesterday_at_level(known: &[f64], window: usize) -> Option<f64> {
    let yesterday = known.len().checked_sub(DAY)?;
    let now = level(known, known.len(), RATIO_SPAN)?;
    let then = level(known, yesterday, RATIO_SPAN)?;
    let (least, most) = RATIO_BOUNDS;
    let ratio = if then > 0.0 {
        (now / then).clamp(least, most)
    } else {
        1.0
    };
    Some(highest(known, yesterday, window)? * ratio)
}

/// The highest demand of the same window on each of the last days.
fn seasons(known: &[f64], window: usize) -> Vec<f64> {
    (1..=SEASONS)
        .filter_map(|day| ago(known, window, day * DAY))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The candidate for windows of `window` minutes and one.
    fn at(name: &str, window: usize, known: &[f64]) -> Vec<f64> {
        let mut all = NaiveCandidate::all(0).map(|plain| NaiveCandidate { window, ..plain });
        let found = all.iter_mut().find(|plain| plain.name() == name).unwrap();
        let answers = found.at(known.into());
        answers.into_iter().map(|answer| answer.peak).collect()
    }

    #[test]
    fn each_naive_candidate_repeats_the_named_window() {
        // Eight days of one step each: day 0 is at 1, 3, 5, 7, 2, 4, 6, 8; the last minute of the window is 0.5 higher.
        let levels = [1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0];
        let mut known: Vec<f64> = levels.iter().flat_map(|&level| vec![level; DAY]).collect();
        known.extend([12.0; 15]);
        for day in 0..8 {
            known[day * DAY + 17] += 0.5;
        }
        let cases = [
            ("hpa", 12.0),
            ("snaive-day", 8.5),
            ("snaive-week", 3.5),
            ("snaive-day*level", 8.5 * 1.5),
            ("median-7d", 5.5),
            ("max-7d", 8.5),
        ];
        for (name, expected) in cases {
            assert_eq!(at(name, 2, &known), [expected], "{name}");
        }
        assert_eq!(at("snaive-day", 1, &known), [8.0], "the window ends before");
    }

    #[test]
    fn the_hpa_reads_minutes_and_the_others_read_the_history() {
        let (minutes, history) = ([2.0; DAY + 9], [3.0; DAY + 9]);
        let known = Known {
            minutes: &minutes,
            history: &history,
            is_raw: false,
        };
        let [mut hpa, mut yesterday, ..] = NaiveCandidate::all(2);
        let answers = [hpa.at(known), yesterday.at(known)];
        assert_eq!(answers, [vec![2.0.into()], vec![3.0.into()]]);
    }

    #[test]
    fn without_enough_history_there_is_no_forecast() {
        let known = [1.0; 100];
        for plain in NaiveCandidate::all(2) {
            let silent = at(plain.name(), 5, &known).is_empty();
            assert_eq!(silent, plain.name() != "hpa", "{}", plain.name());
        }
    }

    #[test]
    fn the_level_ratio_is_bounded() {
        let known = |yesterday: f64, now: f64| [vec![yesterday; DAY], vec![now; 15]].concat();
        let at = |yesterday, now| at("snaive-day*level", 2, &known(yesterday, now));
        assert_eq!(at(1.0, 100.0), [5.0]);
        assert_eq!(at(100.0, 1.0), [20.0]);
        assert_eq!(at(0.0, 1.0), [0.0]);
    }
}
