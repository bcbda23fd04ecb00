use std::sync::Mutex;

use foretide_models::{auto, seasonal};

use super::*;
use crate::ports::HistoryQuery;

const START: i64 = 1_767_225_600;
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

/// What a forecaster was asked with: first and last slot, in minutes from the start, and the last value.
type Asked = (i64, i64, Option<f64>);

/// Answers with its last value, remembers what it was asked with, and may need some history.
#[derive(Debug, Clone, Default)]
struct Witness {
    asked: Arc<Mutex<Vec<Asked>>>,
    needs: usize,
}

impl Forecaster for Witness {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn history_length(&self) -> SignedDuration {
        SignedDuration::from_hours(14 * 24)
    }

    fn sample_interval(&self) -> SignedDuration {
        MINUTE
    }

    fn refresh_period(&self) -> SignedDuration {
        MINUTE
    }

    fn forecast(&mut self, series: &Series, _: SignedDuration) -> Result<Forecast, ForecastError> {
        let minute = |at: Timestamp| (at.as_second() - START).div_euclid(60);
        let last = series.last().map(|sample| sample.value);
        let asked = (minute(series.start()), minute(series.end()) - 1, last);
        self.asked.lock().unwrap().push(asked);
        let usable = series.values().iter().filter(|v| !v.is_nan()).count();
        if usable < self.needs {
            let span = |n: usize| MINUTE * i32::try_from(n).unwrap();
            let (have, need) = (span(usable), span(self.needs));
            return Err(ForecastError::InsufficientHistory { have, need });
        }
        Forecast::new("witness", series.end(), MINUTE, vec![1.0; 60], at(1 << 30))
    }
}

/// A value for each minute, and how many queries were made.
struct Past<F> {
    value: F,
    asked: Mutex<Vec<i64>>,
}

impl<F: Fn(i64) -> f64 + Send + Sync> HistoryReader for Past<F> {
    async fn range(
        &self,
        _: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        _: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        let minutes = (to.as_second() - from.as_second()) / 60;
        self.asked.lock().unwrap().push(minutes);
        let times = (from.as_second()..=to.as_second()).step_by(60);
        let sample = |second: i64| Sample {
            at: Timestamp::from_second(second).unwrap(),
            value: (self.value)((second - START) / 60),
        };
        Ok(times.map(sample).collect())
    }
}

fn request() -> Request {
    Request {
        parts: vec![Part {
            member: None,
            query: HistoryQuery {
                endpoint: None,
                text: "demand".into(),
            },
        }],
        idle: BTreeSet::new(),
        algorithm: Algorithm::Auto(auto::Config::default()),
        horizon: MINUTE,
        lead_time: LeadTime::of(None, None),
    }
}

/// Refreshes a plan at each of these seconds; what came of each, and how many minutes each query covered.
async fn refreshed(
    (witness, request): (&Witness, Request),
    seconds: impl IntoIterator<Item = i64>,
    value: impl Fn(i64) -> f64 + Send + Sync,
) -> (Vec<Refreshed>, Vec<i64>) {
    let (histories, asked) = (HistoryCache::default(), Mutex::default());
    let past = Past { value, asked };
    let plan = Plan::new(request, Box::new(witness.clone()), at(0)).unwrap();
    let RefreshState::Here(mut refresher) = plan.place else {
        unreachable!("nothing was sent out");
    };
    let mut all = Vec::new();
    for second in seconds {
        let now = at(second);
        let samples = refresher.read(&past, &histories, &[], now).await;
        let mut outcome = refresher.conclude(samples, now).await;
        refresher = outcome.refresher.take().unwrap();
        all.push(outcome);
    }
    let asked = past.asked.lock().unwrap().clone();
    (all, asked)
}

fn reason(refreshed: &Refreshed) -> Option<Reason> {
    match &refreshed.outcome {
        Err(Failure::Refused(refused)) => Some(refused.reason),
        _ => None,
    }
}

#[tokio::test]
async fn the_grid_does_not_slide_and_what_was_learnt_from_is_not_handed_over_again() {
    let witness = Witness::default();
    let seconds = [7, 61, 65, 3600 * 12 + 30];
    let (_, queries) = refreshed((&witness, request()), seconds, |_| 1.0).await;
    let day = 24 * 60;
    let asked = witness.asked.lock().unwrap().clone();
    let kept = 26 * 60;
    let want = [
        (-14 * day, 0, Some(1.0)),
        (1 - kept, 1, Some(1.0)),
        (1 - kept, 1, Some(1.0)),
        (720 - kept, 720, Some(1.0)),
    ];
    assert_eq!(asked, want);
    // All of it in two pieces; what is new and five minutes before it; what is kept, when half of that is not known.
    assert_eq!(queries, [10_999, 14 * day - 11_000, 6, 5, kept - 1]);
}

#[tokio::test]
async fn who_was_not_asked_for_half_a_day_starts_afresh() {
    let witness = Witness::default();
    refreshed((&witness, request()), [0, 3600 * 14], |_| 1.0).await;
    let starts = witness.asked.lock().unwrap().clone();
    assert_eq!(starts[1].0, 14 * 60 - 14 * 24 * 60);
}

#[tokio::test]
async fn a_change_of_unit_cuts_off_the_past_and_says_so_until_there_is_enough_again() {
    let witness = Witness {
        needs: 120,
        ..Witness::default()
    };
    // From minute 10 on everything is counted in thousandths.
    let value = |minute| if minute < 10 { 2.0 } else { 2000.0 };
    let seconds = (0..180).map(|minute| minute * 60);
    let daily = Request {
        algorithm: Algorithm::SeasonalNaive(seasonal::Config::default()),
        ..request()
    };
    let (all, _) = refreshed((&witness, daily), seconds, value).await;
    let reasons: Vec<_> = all.iter().map(reason).collect();
    // Six samples of it might be an error of measurement; thirty of them are the unit.
    let first = reasons.iter().position(Option::is_some).unwrap();
    assert_eq!(first, 39);
    // The forecaster of the new series is made from the settings anew, and needs a day.
    assert!(
        reasons[first..]
            .iter()
            .flatten()
            .all(|r| *r == Reason::SeriesChanged)
    );
    let Err(Failure::Refused(refused)) = &all[first].outcome else {
        unreachable!("it was refused");
    };
    assert!(refused.message.contains("by a factor of 1000"), "{refused}");
}

#[tokio::test]
async fn a_sample_that_cannot_be_is_a_gap_and_is_counted_once() {
    use Rejection::{Absurd, Negative, NotFinite};
    let witness = Witness::default();
    let value = |minute| match minute {
        -5 => f64::NAN,
        -3 => -1.0,
        -1 => 1e300,
        1 => f64::INFINITY,
        _ => 1.0,
    };
    let (all, _) = refreshed((&witness, request()), [0, 60, 120], value).await;
    let rejected: Vec<_> = all.into_iter().map(|one| one.rejected).collect();
    let want = [vec![NotFinite, Negative, Absurd], vec![NotFinite], vec![]];
    assert_eq!(rejected, want);
}

#[test]
fn turns_do_not_drift_and_failures_are_tried_again_sooner() {
    let mut plan = Plan::new(request(), Box::new(Witness::default()), at(0)).unwrap();
    let fine =
        || Witness::default().forecast(&Series::from_values(at(0), MINUTE, vec![1.0]), MINUTE);
    let fine = || fine().map_err(|_| Failure::Unread(HistoryError::Empty));
    for (now, turn) in [(4, 60), (64, 120), (121, 180), (300, 360)] {
        plan.set_turn(&fine(), at(now));
        assert_eq!(plan.turn(), at(turn), "at {now}");
    }
    for (now, wait) in [(360, 15), (380, 30), (410, 60), (470, 60)] {
        plan.set_turn(&Err(Failure::Unread(HistoryError::Empty)), at(now));
        let turn = plan.turn().duration_since(at(now)).as_secs();
        assert!((wait - 10..=wait).contains(&turn), "at {now}: {turn}");
    }
}

#[test]
fn only_where_a_lead_time_is_from_may_differ_in_an_unchanged_request() {
    let mut plan = Plan::new(request(), Box::new(Witness::default()), at(0)).unwrap();
    let measured = Request {
        lead_time: LeadTime::of(None, Some(MINUTE * 2)),
        ..request()
    };
    assert!(plan.asks_for(&measured));
    let lead_time = measured.lead_time;
    plan.situate(measured);
    assert_eq!(plan.lead_time(), lead_time);
    let longer = Request {
        algorithm: Algorithm::Auto(auto::Config {
            lead_time: MINUTE * 5,
            ..auto::Config::default()
        }),
        ..request()
    };
    assert!(!plan.asks_for(&longer));
}
