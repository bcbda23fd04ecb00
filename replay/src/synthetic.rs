//! Synthetic traces, for a first try and for the golden file of this crate: the public traces are not part of it.
//!
//! Three workloads of six days. They are made of whole numbers of sixty-fourths, so that every machine has the same
//! values and a file in decimals is exact.

use crate::{DAY, Trace};

const MINUTES: usize = 6 * DAY;

/// Synthetic traces, one of each of three kinds of load.
///
/// # Formula
/// In sixty-fourths, with `t` the minute, `day(t)` a triangle from 0 at midnight to 720 at noon, and `noise(n)` a whole
/// number below `n` from the linear congruence `x <- 1664525 x + 1013904223 (mod 2^32)`, `x = 1` before the first
/// minute of a trace, of whose upper 16 bits it is the remainder by `n`:
///
/// | name | demand |
/// |---|---|
/// | `daily` | `400 + 4 day(t) + noise(128)` |
/// | `bursts` | `400 + day(t) + noise(64)`, and `3000 + noise(1024)` more in the first eight of every ninety minutes |
/// | `step` | `600 + 2 day(t) + noise(256)`, twice that from noon of the fifth day on |
pub fn synthetic_traces() -> Vec<Trace> {
    let daily = |t: usize, noise: &mut Noise| 400 + 4 * day(t) + noise.below(128);
    let bursts = |t: usize, noise: &mut Noise| {
        let base = 400 + day(t) + noise.below(64);
        if t % 90 < 8 {
            base + 3000 + noise.below(1024)
        } else {
            base
        }
    };
    let step = |t: usize, noise: &mut Noise| {
        let level = if t < 4 * DAY + DAY / 2 { 1 } else { 2 };
        level * (600 + 2 * day(t) + noise.below(256))
    };
    vec![
        trace("daily", "smooth", &daily),
        trace("bursts", "spiky", &bursts),
        trace("step", "shift", &step),
    ]
}

/// The linear congruence.
#[derive(Debug)]
struct Noise(u32);

// === impl Noise ===

impl Noise {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 16) % n
    }
}

fn trace(name: &str, class: &str, demand: &dyn Fn(usize, &mut Noise) -> u32) -> Trace {
    let mut noise = Noise(1);
    let demand = (0..MINUTES).map(|t| f64::from(demand(t, &mut noise)) / 64.0);
    Trace {
        name: name.to_owned(),
        class: class.to_owned(),
        what: Some("synthetic".to_owned()),
        native: Some(60),
        start: 0,
        demand: demand.collect(),
    }
}

/// From 0 at midnight to 720 at noon and back.
fn day(t: usize) -> u32 {
    let minute = t % DAY;
    u32::try_from(minute.min(DAY - minute)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_are_those_of_the_formula() {
        let traces = synthetic_traces();
        // The upper halves of the first two numbers of the congruence are 15496 and 24200.
        let seen = [0, 1, 2].map(|at| traces[at].demand[0] * 64.0);
        let expected = [
            400 + 15496 % 128,
            3400 + 15496 % 64 + 24200 % 1024,
            600 + 15496 % 256,
        ];
        assert_eq!(seen.to_vec(), expected.map(f64::from));
        let step = &traces[2].demand;
        assert!(step[4 * DAY + 720] > 1.8 * step[3 * DAY + 720]);
        assert!(traces.iter().all(|trace| trace.demand.len() == 8640));
    }
}
