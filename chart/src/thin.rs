//! Fewer points that draw the same picture: of each column of pixels the first, the lowest, the highest and the last.
//!
//! A mean would hide the peak that somebody looks for, so no value is invented and no extreme is lost.

use crate::{Band, Point, Shortage};

/// The points of a run that show in their columns, in their order.
pub fn points(run: &[Point], column: impl Fn(&Point) -> usize) -> Vec<Point> {
    let mut kept = Vec::new();
    for group in run.chunk_by(|left, right| column(left) == column(right)) {
        let order =
            |&left: &usize, &right: &usize| value(group, left).total_cmp(&value(group, right));
        let lowest = (0..group.len()).min_by(order);
        let highest = (0..group.len()).max_by(order);
        let last = group.len().checked_sub(1);
        let mut places: Vec<usize> = [Some(0), lowest, highest, last]
            .into_iter()
            .flatten()
            .collect();
        places.sort_unstable();
        places.dedup();
        kept.extend(places.into_iter().filter_map(|place| group.get(place)));
    }
    kept
}

fn value(group: &[Point], place: usize) -> f64 {
    group.get(place).map_or(f64::NAN, |point| point.value)
}

/// The range that the bands of each column cover together; a column's first and last keep their instants.
pub fn bands(run: &[Band], column: impl Fn(&Band) -> usize) -> Vec<Band> {
    let mut kept = Vec::new();
    for group in run.chunk_by(|left, right| column(left) == column(right)) {
        let low = group
            .iter()
            .map(|band| band.low)
            .fold(f64::INFINITY, f64::min);
        let high = group
            .iter()
            .map(|band| band.high)
            .fold(f64::NEG_INFINITY, f64::max);
        let ends = match group {
            [first, .., last] => vec![first.at, last.at],
            ends => ends.iter().map(|band| band.at).collect(),
        };
        kept.extend(ends.into_iter().map(|at| Band { at, low, high }));
    }
    kept
}

/// The shortages of each column as one, from the least there was to the most that was needed.
pub fn shortages(shortages: &[Shortage], column: impl Fn(&Shortage) -> usize) -> Vec<Shortage> {
    shortages
        .chunk_by(|left, right| column(left) == column(right))
        .filter_map(|group| {
            group.iter().copied().reduce(|left, right| Shortage {
                at: left.at.min(right.at),
                until: left.until.max(right.until),
                had: left.had.min(right.had),
                needed: left.needed.max(right.needed),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn run(values: &[f64]) -> Vec<Point> {
        let point = |(second, value): (i64, &f64)| Point {
            at: Timestamp::from_second(second).unwrap(),
            value: *value,
        };
        (0..).zip(values).map(point).collect()
    }

    /// The first, lowest, highest and last value of a column.
    fn shown(points: &[Point], column: usize, wide: usize) -> Option<[f64; 4]> {
        let values = points.iter().filter(|point| at(point, wide) == column);
        let values: Vec<f64> = values.map(|point| point.value).collect();
        let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some([*values.first()?, lowest, highest, *values.last()?])
    }

    fn at(point: &Point, wide: usize) -> usize {
        usize::try_from(point.at.as_second()).unwrap() / wide
    }

    proptest! {
        #[test]
        fn fewer_points_show_the_same_in_every_column(
            values in prop::collection::vec(prop_oneof![0.0..9.0_f64, Just(4.0)], 0..400),
            wide in 1..60_usize,
        ) {
            let all = run(&values);
            let kept = points(&all, |point| at(point, wide));
            let columns = values.len().div_ceil(wide);
            prop_assert!(kept.len() <= 4 * columns, "{} of {columns}", kept.len());
            prop_assert!(kept.is_sorted_by(|left, right| left.at < right.at));
            prop_assert!(kept.iter().all(|point| all.contains(point)), "no value is invented");
            for column in 0..columns {
                prop_assert_eq!(shown(&kept, column, wide), shown(&all, column, wide));
            }
        }

        #[test]
        fn bands_and_shortages_cover_what_they_covered(
            values in prop::collection::vec((0.0..9.0_f64, 0.0..9.0_f64), 1..200),
            wide in 1..60_i64,
        ) {
            let second = |second: i64| Timestamp::from_second(second).unwrap();
            let band = |(index, (low, more)): (i64, &(f64, f64))| Band {
                at: second(index),
                low: *low,
                high: low + more,
            };
            let all: Vec<Band> = (0..).zip(&values).map(band).collect();
            let kept = bands(&all, |band| usize::try_from(band.at.as_second() / wide).unwrap());
            let short = |band: &Band| Shortage {
                at: band.at,
                until: second(band.at.as_second() + 1),
                had: band.low,
                needed: band.high,
            };
            let missing: Vec<Shortage> = all.iter().map(short).collect();
            let column = |short: &Shortage| usize::try_from(short.at.as_second() / wide).unwrap();
            let joined = shortages(&missing, column);
            for one in &all {
                let same = |other: &&Band| other.at.as_second() / wide == one.at.as_second() / wide;
                let covers = |other: &Band| other.low <= one.low && one.high <= other.high;
                prop_assert!(kept.iter().filter(same).all(covers));
                let covers = |short: &Shortage| {
                    let when = short.at <= one.at && one.at < short.until;
                    when && short.had <= one.low && one.high <= short.needed
                };
                prop_assert!(joined.iter().any(covers));
            }
        }
    }
}
