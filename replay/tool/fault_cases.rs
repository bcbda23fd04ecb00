//! The faults: functions that change the demand, the history of the forecaster, or what the autoscaler reads.

use foretide_replay::DAY;

/// The seed of the first trace; each further trace adds one.
pub(crate) const SEED: u64 = 20_260_301;

/// A trace with a fault.
#[derive(Debug, Clone)]
pub(crate) struct FaultyTrace {
    /// The actual demand.
    pub(crate) demand: Vec<f64>,
    /// The history of the forecaster; NaN is missing.
    pub(crate) history: Vec<f64>,
    /// The demand that the autoscaler reads every minute.
    pub(crate) read: Vec<f64>,
    /// The first counted minute.
    pub(crate) from: usize,
}

/// A fault to inject.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// Whether its cost has a limit.
    pub(crate) limited: bool,
    kind: FaultKind,
}

/// What a fault changes.
#[derive(Debug, Clone, Copy)]
enum FaultKind {
    /// The demand.
    Demand(fn(&mut Vec<f64>, usize)),
    /// The history only; the autoscaler reads correct values.
    History(fn(&mut [f64], &mut Rng)),
    /// All measurements; where one is missing, the autoscaler uses the last one.
    Measurements(fn(&mut [f64], &mut Rng)),
}

/// A pseudo-random number generator with a fixed seed.
#[derive(Debug)]
struct Rng(u64);

/// All faults; the first case has none.
pub(crate) const FAULTS: [Fault; 9] = [
    fault("none", FaultKind::Demand(|_, _| ())),
    fault(
        "0.3 % of the samples ten times too high",
        FaultKind::History(|history, rng| corrupt(history, rng, 0.003, |value| 10.0 * value)),
    ),
    fault(
        "1 % of the samples zero",
        FaultKind::History(|history, rng| corrupt(history, rng, 0.01, |_| 0.0)),
    ),
    Fault {
        name: "1 % of the samples lost, and 3 h every second day",
        limited: false,
        kind: FaultKind::Measurements(lose),
    },
    fault(
        "the clock moves: from the middle on everything comes an hour earlier",
        FaultKind::Demand(|demand, middle| {
            demand.drain(middle..middle + 60);
        }),
    ),
    fault(
        "level x 2 from the middle on",
        FaultKind::Demand(|demand, middle| scale(demand, middle, DAY * 366, 2.0)),
    ),
    fault(
        "level x 0.4 from the middle on",
        FaultKind::Demand(|demand, middle| scale(demand, middle, DAY * 366, 0.4)),
    ),
    fault(
        "outage of 4 h in the middle",
        FaultKind::Demand(|demand, middle| scale(demand, middle, 240, 0.0)),
    ),
    fault(
        "crowd of x 4 for an hour on the day before the middle",
        FaultKind::Demand(|demand, middle| scale(demand, middle - DAY, 60, 4.0)),
    ),
];

const fn fault(name: &'static str, kind: FaultKind) -> Fault {
    Fault {
        name,
        limited: true,
        kind,
    }
}

// === impl Fault ===

impl Fault {
    /// The demand with the fault, of which the minutes from `from` on are counted.
    pub(crate) fn inject(&self, demand: &[f64], from: usize, seed: u64) -> FaultyTrace {
        let mut demand = demand.to_vec();
        if let FaultKind::Demand(change) = self.kind {
            let middle = usize::midpoint(from, demand.len());
            change(&mut demand, middle);
        }
        let (mut history, mut read) = (demand.clone(), demand.clone());
        match self.kind {
            FaultKind::Demand(_) => {}
            FaultKind::History(corrupt) => corrupt(&mut history, &mut Rng::new(seed)),
            FaultKind::Measurements(corrupt) => {
                corrupt(&mut history, &mut Rng::new(seed));
                read = held(&history);
            }
        }
        FaultyTrace {
            demand,
            history,
            read,
            from,
        }
    }
}

// === impl Rng ===

impl Rng {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number in `[0, 1)`: splitmix64.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(0);
        f64::from(high) / 4_294_967_296.0
    }

    /// A whole number below `n`.
    fn below(&mut self, n: u32) -> usize {
        let mark = self.next();
        (1..n)
            .take_while(|i| f64::from(*i) <= mark * f64::from(n))
            .count()
    }
}

fn corrupt(values: &mut [f64], rng: &mut Rng, part: f64, with: fn(f64) -> f64) {
    for value in values {
        if rng.next() < part {
            *value = with(*value);
        }
    }
}

/// One sample in a hundred, and three hours of every second day; never the first minute.
fn lose(values: &mut [f64], rng: &mut Rng) {
    let values = values.get_mut(1..).unwrap_or_default();
    corrupt(values, rng, 0.01, |_| f64::NAN);
    for days in values.chunks_mut(2 * DAY) {
        let from = rng.below(24 * 60 - 180);
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

/// Replaces missing values by those before them.
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
    fn cases() -> Vec<(&'static Fault, FaultyTrace)> {
        let demand: Vec<f64> = (0..14_400_u32).map(|t| f64::from(t) + 1.0).collect();
        let inject = |fault: &'static Fault| (fault, fault.inject(&demand, 7 * DAY, SEED));
        FAULTS.iter().map(inject).collect()
    }

    #[test]
    fn each_fault_changes_the_named_part() {
        let whole: f64 = (1..=14_400_u32).map(f64::from).sum();
        let middle = 8 * DAY + DAY / 2;
        for (fault, case) in cases() {
            let FaultyTrace {
                demand,
                history,
                read,
                ..
            } = &case;
            let odd = history
                .iter()
                .zip(demand)
                .filter(|(seen, actual)| (*seen - *actual).abs() > 1e-9 || seen.is_nan())
                .count();
            let sum: f64 = demand.iter().sum();
            let seen = (odd, (sum / whole * 1e3).round(), demand.len());
            let expected = match fault.name.split_once(' ').map_or("", |(first, _)| first) {
                "0.3" => (25..=60, 1000.0, 14_400),
                "1" if fault.limited => (110..=180, 1000.0, 14_400),
                "1" => (1000..=1080, 1000.0, 14_400),
                "the" => (0..=0, 993.0, 14_340),
                "level" if fault.name.contains("x 2") => (0..=0, 1277.0, 14_400),
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
                fault.name
            );
            let untouched = demand.get(..middle - DAY) == read.get(..middle - DAY);
            assert_eq!(untouched, fault.limited, "{}", fault.name);
            assert!(read.iter().all(|value| value.is_finite()));
        }
    }

    #[test]
    fn random_faults_are_repeatable() {
        let pairs = cases().into_iter().zip(cases());
        for ((fault, first), (_, second)) in pairs {
            let bits =
                |case: &FaultyTrace| case.history.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&first), bits(&second), "{}", fault.name);
        }
    }
}
