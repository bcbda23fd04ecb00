//! The value axis: its top, its lines and their labels in the unit of a panel.

use crate::Unit;

/// Distances of lines, within a power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// Higher values are drawn at the top, as their sums and multiples need not be finite.
const HIGHEST: f64 = 1e300;

/// Values from zero to a top, with lines at round values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The value at the upper edge.
    pub top: f64,
    /// The distance of its lines.
    step: f64,
}

// === impl Scale ===

impl Scale {
    /// A scale with about `lines` lines to a given top, or to the first line that is not below the highest value.
    pub fn new(top: Option<f64>, highest: f64, lines: f64, unit: &Unit) -> Self {
        let given = top.filter(|top| *top > 0.0 && *top <= HIGHEST);
        let highest = given.unwrap_or(highest).clamp(f64::MIN_POSITIVE, HIGHEST);
        let step = round_step(highest / lines, unit);
        // A value that is above a line by rounding alone needs no further line.
        let reached = (highest / step * (1.0 - 1e-9)).ceil().max(1.0) * step;
        Self {
            top: given.unwrap_or(reached),
            step,
        }
    }

    /// Round values around a range that need not contain zero: the ends of the axis, and its lines.
    pub fn range((from, until): (f64, f64), lines: f64, unit: &Unit) -> ((f64, f64), Vec<f64>) {
        if !(from.abs() <= HIGHEST && until.abs() <= HIGHEST) {
            return ((0.0, 1.0), Vec::new());
        }
        // A single value has no width.
        let wide = (until - from).max(until.abs() * 1e-3).max(1e-9);
        let step = round_step(wide / lines, unit);
        let first = (from / step).floor();
        let count = (until / step).ceil() - first;
        let values: Vec<f64> = (0_u32..=100)
            .map(f64::from)
            .take_while(|index| *index <= count.max(1.0))
            .map(|index| (first + index) * step)
            .collect();
        let end = values.last().copied().unwrap_or(until);
        ((first * step, end), values)
    }

    /// The values at its lines, from zero up.
    pub fn lines(self) -> impl Iterator<Item = f64> {
        (0_u32..)
            .map(move |index| f64::from(index) * self.step)
            .take_while(move |value| *value <= self.top * (1.0 + 1e-9))
    }
}

/// The least round number that is not below a distance: of bytes a power of two.
fn round_step(least: f64, unit: &Unit) -> f64 {
    let least = match unit {
        Unit::Bytes => return least.max(1.0).log2().ceil().exp2(),
        Unit::Replicas => least.max(1.0),
        _ => least,
    };
    let power = 10_f64.powf(least.log10().floor());
    STEPS
        .iter()
        .map(|step| step * power)
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(least)
}

/// The greatest power of 1,024 that is not above a value, and its prefix.
fn binary(value: f64) -> (f64, &'static str) {
    let mut scale = (1.0, "");
    for prefix in ["Ki", "Mi", "Gi", "Ti", "Pi"] {
        if value < scale.0 * 1024.0 {
            break;
        }
        scale = (scale.0 * 1024.0, prefix);
    }
    scale
}

// === impl Unit ===

impl Unit {
    /// A value with its unit: `12 replicas`, `1.5 cores`, `2 GiB`, `40 %`.
    pub fn write(&self, value: f64) -> String {
        let number = self.label(value);
        match self {
            Self::Replicas if number == "1" => "1 replica".to_owned(),
            Self::Replicas => format!("{number} replicas"),
            Self::Named(name) => format!("{number} {name}"),
            Self::None | Self::Bytes | Self::Percent => number,
        }
    }

    /// A value on the value axis, which has the word of the unit above it.
    pub(crate) fn label(&self, value: f64) -> String {
        match self {
            Self::Bytes => {
                let (scale, prefix) = binary(value);
                format!("{} {prefix}B", rounded(value / scale))
            }
            Self::Percent => format!("{} %", rounded(value)),
            Self::None | Self::Replicas | Self::Named(_) => decimal(value),
        }
    }

    /// The word above the value axis, if its labels have none.
    pub(crate) fn word(&self) -> &str {
        match self {
            Self::Replicas => "replicas",
            Self::Named(name) => name,
            Self::None | Self::Bytes | Self::Percent => "",
        }
    }
}

/// A number with a prefix from ten thousand on.
fn decimal(value: f64) -> String {
    let prefixes = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")];
    let fits = prefixes.into_iter().find(|(scale, _)| value >= *scale);
    match fits {
        Some((scale, prefix)) => {
            // `k` is used from ten thousand on, and stands for one.
            rounded(value / scale.min(if scale < 1e5 { 1e3 } else { scale })) + prefix
        }
        None => rounded(value),
    }
}

/// A number with at most four decimals below 1, two below 100, and none above.
fn rounded(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    let mut text = format!("{value:.digits$}");
    if digits == 0 {
        // Of five digits and more, only those that are rounded up to them are written without a prefix.
        if text.len() > 3 {
            text.insert(text.len() - 3, ',');
        }
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The labels of the lines, with a bar between two.
    fn lines(top: Option<f64>, highest: f64, unit: &Unit) -> String {
        let scale = Scale::new(top, highest, 4.0, unit);
        let labels = scale.lines().map(|value| unit.label(value));
        labels.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn lines_are_round_in_the_unit() {
        let named = Unit::Named("cores".to_owned());
        let bytes = 3.5 * 1024.0 * 1024.0 * 1024.0;
        for (top, highest, unit, expected) in [
            (None, 13.0, &Unit::Replicas, "0|5|10|15"),
            (None, 1.0, &Unit::Replicas, "0|1"),
            (Some(13.0), 99.0, &Unit::Replicas, "0|5|10"),
            (None, 0.0, &Unit::Replicas, "0|1"),
            (None, 2900.0, &Unit::Replicas, "0|1,000|2,000|3,000"),
            (None, 1.4, &named, "0|0.5|1|1.5"),
            (None, 0.04, &named, "0|0.01|0.02|0.03|0.04"),
            (None, 70_000.0, &Unit::None, "0|20 k|40 k|60 k|80 k"),
            (None, 40.0, &Unit::Percent, "0 %|10 %|20 %|30 %|40 %"),
            (None, bytes, &Unit::Bytes, "0 B|1 GiB|2 GiB|3 GiB|4 GiB"),
        ] {
            let found = lines(top, highest, unit);
            assert_eq!(found, expected, "{top:?} {highest} {unit:?}");
        }
    }

    #[test]
    fn values_have_their_units() {
        let cores = Unit::Named("cores".to_owned());
        for (unit, value, expected) in [
            (Unit::Replicas, 12.0, "12 replicas"),
            (Unit::Replicas, 1.0, "1 replica"),
            (cores, 1.5, "1.5 cores"),
            (Unit::Bytes, 2_147_483_648.0, "2 GiB"),
            (Unit::Bytes, 1000.0, "1,000 B"),
            (Unit::Percent, 40.0, "40 %"),
            (Unit::None, 0.125, "0.125"),
            (Unit::None, 1234.0, "1,234"),
            (Unit::None, 12_340.0, "12.34 k"),
            (Unit::None, 2e6, "2 M"),
        ] {
            assert_eq!(unit.write(value), expected);
        }
    }

    #[test]
    fn any_highest_value_has_a_few_lines() {
        for highest in [0.0, f64::MIN_POSITIVE, 1e-300, 0.3, 7.0, 1e300, f64::MAX] {
            for unit in [Unit::None, Unit::Replicas, Unit::Bytes, Unit::Percent] {
                let scale = Scale::new(None, highest, 4.0, &unit);
                let lines = scale.lines().take(100).count();
                assert!((2..=9).contains(&lines), "{highest} {unit:?}: {lines}");
            }
        }
    }
}
