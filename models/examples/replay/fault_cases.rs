//! The mishaps themselves: functions from demand to what is demanded, measured and read then.

use foretide_models::replay::DAY;

/// From which the random numbers of the first trace begin; each further trace adds one.
pub(crate) const SEED: u64 = 20_260_301;

/// A trace to which something has happened.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// What really came.
    pub(crate) demand: Vec<f64>,
    /// What the history of the forecaster says; `NaN` is missing.
    pub(crate) history: Vec<f64>,
    /// What the autoscaler reads every minute.
    pub(crate) read: Vec<f64>,
    /// The first minute that counts.
    pub(crate) from: usize,
}

/// Something that goes wrong.
#[derive(Debug)]
pub(crate) struct Mishap {
    pub(crate) name: &'static str,
    /// Whether it may cost no more than a little.
    pub(crate) judged: bool,
    happens: Happens,
}

/// To what it happens.
#[derive(Debug, Clone, Copy)]
enum Happens {
    /// To the demand.
    Demand(fn(&mut Vec<f64>, usize)),
    /// To the history only: what the autoscaler reads is right.
    History(fn(&mut [f64], &mut Dice)),
    /// To every measurement: where nothing is measured the autoscaler goes on with what it read last.
    Measurements(fn(&mut [f64], &mut Dice)),
}

/// Random numbers that are always the same.
#[derive(Debug)]
struct Dice(u64);

/// All of them; the first is none.
pub(crate) const MISHAPS: [Mishap; 9] = [
    mishap("none", Happens::Demand(|_, _| ())),
    mishap(
        "0.3 % of the samples ten times too high",
        Happens::History(|history, dice| spoil(history, dice, 0.003, |value| 10.0 * value)),
    ),
    mishap(
        "1 % of the samples zero",
        Happens::History(|history, dice| spoil(history, dice, 0.01, |_| 0.0)),
    ),
    Mishap {
        name: "1 % of the samples lost, and 3 h every second day",
        judged: false,
        happens: Happens::Measurements(lose),
    },
    mishap(
        "the clock moves: from the middle on everything comes an hour earlier",
        Happens::Demand(|demand, middle| {
            demand.drain(middle..middle + 60);
        }),
    ),
    mishap(
        "level x 2 from the middle on",
        Happens::Demand(|demand, middle| scale(demand, middle, DAY * 366, 2.0)),
    ),
    mishap(
        "level x 0.4 from the middle on",
        Happens::Demand(|demand, middle| scale(demand, middle, DAY * 366, 0.4)),
    ),
    mishap(
        "outage of 4 h in the middle",
        Happens::Demand(|demand, middle| scale(demand, middle, 240, 0.0)),
    ),
    mishap(
        "crowd of x 4 for an hour on the day before the middle",
        Happens::Demand(|demand, middle| scale(demand, middle - DAY, 60, 4.0)),
    ),
];

const fn mishap(name: &'static str, happens: Happens) -> Mishap {
    Mishap {
        name,
        judged: true,
        happens,
    }
}

// === impl Mishap ===

impl Mishap {
    /// What becomes of this demand, of which the minutes from `from` on count.
    pub(crate) fn befall(&self, demand: &[f64], from: usize, seed: u64) -> Case {
        let mut demand = demand.to_vec();
        if let Happens::Demand(change) = self.happens {
            let middle = usize::midpoint(from, demand.len());
            change(&mut demand, middle);
        }
        let (mut history, mut read) = (demand.clone(), demand.clone());
        match self.happens {
            Happens::Demand(_) => {}
            Happens::History(spoil) => spoil(&mut history, &mut Dice::new(seed)),
            Happens::Measurements(spoil) => {
                spoil(&mut history, &mut Dice::new(seed));
                read = held(&history);
            }
        }
        Case {
            demand,
            history,
            read,
            from,
        }
    }
}

// === impl Dice ===

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number in `[0, 1)`: splitmix64.
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(0);
        f64::from(high) / 4_294_967_296.0
    }

    /// A whole number below `n`.
    fn below(&mut self, n: u32) -> usize {
        let mark = self.roll();
        (1..n)
            .take_while(|i| f64::from(*i) <= mark * f64::from(n))
            .count()
    }
}

fn spoil(values: &mut [f64], dice: &mut Dice, part: f64, with: fn(f64) -> f64) {
    for value in values {
        if dice.roll() < part {
            *value = with(*value);
        }
    }
}

/// One sample in a hundred, and three hours of every second day; never the first minute.
fn lose(values: &mut [f64], dice: &mut Dice) {
    let values = values.get_mut(1..).unwrap_or_default();
    spoil(values, dice, 0.01, |_| f64::NAN);
    for days in values.chunks_mut(2 * DAY) {
        let from = dice.below(24 * 60 - 180);
        for value in days.iter_mut().skip(from).take(180) {
            *value = f64::NAN;
        }
    }
}

fn scale(demand: &mut [f64], from: usize, minutes: usize, by: f64) {
    for value in demand.iter_mut().skip(from).take(minutes) {
        *value *= by;
    }
}

/// Missing values are those before them.
fn held(values: &[f64]) -> Vec<f64> {
    let mut last = 0.0;
    let hold = |value: &f64| {
        if !value.is_nan() {
            last = *value;
        }
        last
    };
    values.iter().map(hold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten days of which the last three count.
    fn cases() -> Vec<(&'static Mishap, Case)> {
        let demand: Vec<f64> = (0..14_400_u32).map(|t| f64::from(t) + 1.0).collect();
        let befall = |mishap: &'static Mishap| (mishap, mishap.befall(&demand, 7 * DAY, SEED));
        MISHAPS.iter().map(befall).collect()
    }

    #[test]
    fn each_mishap_happens_where_it_says() {
        let whole: f64 = (1..=14_400_u32).map(f64::from).sum();
        let middle = 8 * DAY + DAY / 2;
        for (mishap, case) in cases() {
            let Case {
                demand,
                history,
                read,
                ..
            } = &case;
            let odd = history
                .iter()
                .zip(demand)
                .filter(|(seen, came)| (*seen - *came).abs() > 1e-9 || seen.is_nan())
                .count();
            let sum: f64 = demand.iter().sum();
            let seen = (odd, (sum / whole * 1e3).round(), demand.len());
            let expected = match mishap.name.split_once(' ').map_or("", |(first, _)| first) {
                "0.3" => (25..=60, 1000.0, 14_400),
                "1" if mishap.judged => (110..=180, 1000.0, 14_400),
                "1" => (1000..=1080, 1000.0, 14_400),
                "the" => (0..=0, 993.0, 14_340),
                "level" if mishap.name.contains("x 2") => (0..=0, 1277.0, 14_400),
                "level" => (0..=0, 834.0, 14_400),
                "outage" => (0..=0, 971.0, 14_400),
                "crowd" => (0..=0, 1019.0, 14_400),
                _ => (0..=0, 1000.0, 14_400),
            };
            assert!(
                expected.0.contains(&seen.0)
                    && (seen.1 - expected.1).abs() < 1.5
                    && seen.2 == expected.2,
                "{}: {seen:?}, expected {expected:?}",
                mishap.name
            );
            let untouched = demand.get(..middle - DAY) == read.get(..middle - DAY);
            assert_eq!(untouched, mishap.judged, "{}", mishap.name);
            assert!(read.iter().all(|value| value.is_finite()));
        }
    }

    #[test]
    fn what_is_random_is_always_the_same() {
        let pairs = cases().into_iter().zip(cases());
        for ((mishap, first), (_, second)) in pairs {
            let bits = |case: &Case| case.history.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&first), bits(&second), "{}", mishap.name);
        }
    }
}
