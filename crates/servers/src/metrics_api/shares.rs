//! The division of a total over pods.

/// The shares of `count` pods in a total: whole numbers that differ by one at most and add up to the total. The first
/// ones are the larger ones. Without pods there are none.
pub fn shares(total: i64, count: usize) -> impl Iterator<Item = i64> {
    let pods = i64::try_from(count).unwrap_or(i64::MAX).max(1);
    let (each, larger) = (total.div_euclid(pods), total.rem_euclid(pods));
    (0..pods)
        .take(count)
        .map(move |pod| each + i64::from(pod < larger))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_pods_have_the_rest() {
        let of = |total, count| shares(total, count).collect::<Vec<_>>();
        assert_eq!(of(900, 4), [225, 225, 225, 225]);
        assert_eq!(of(902, 4), [226, 226, 225, 225]);
        assert_eq!(of(2, 3), [1, 1, 0]);
        assert_eq!(of(0, 2), [0, 0]);
        assert_eq!(of(7, 0), [] as [i64; 0]);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_total_and_differ_by_one_at_most(
            total in any::<i64>(),
            count in 1_usize..2_000,
        ) {
            let shares: Vec<i64> = shares(total, count).collect();
            prop_assert_eq!(shares.len(), count);
            let sum: i128 = shares.iter().map(|share| i128::from(*share)).sum();
            prop_assert_eq!(sum, i128::from(total));
            let (least, most) = (shares.iter().min(), shares.iter().max());
            prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
            prop_assert!(shares.is_sorted_by(|a, b| a >= b));
        }
    }
}
