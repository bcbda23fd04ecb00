//! Faults of requests on each link, as a function of a seed.
//!
//! A fault depends only on the seed, the link and the number of the request on it. So a plan can be run again without
//! one of its faults, which is how a failure is shrunk.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Refused with this code, without effect: 429, 500, 503 or 504.
    Refused(u16),
    /// Never answered, without effect.
    Hang,
    /// Effective, but never answered.
    LostAnswer,
    /// Effective, but the connection is reset.
    Cut,
    /// Effective with a delay.
    Late(Duration),
    /// Each event of a watch is sent with a delay.
    WatchLag(Duration),
    /// A watch ends without a word after this time.
    WatchDropped(Duration),
    /// The server forgets its history before it answers.
    Compaction,
}

/// A request: its link, as `client host`, and its number there.
pub type RequestId = (String, u64);

/// The faults of requests by a seed.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    seed: u64,
    /// Faulty requests in a thousand.
    rate: u64,
    without: BTreeSet<RequestId>,
    happened: Vec<(RequestId, Fault)>,
}

// === impl Fault ===

impl Fault {
    /// All kinds by name.
    pub const NAMES: [&str; 8] = [
        "refused",
        "hang",
        "lost answer",
        "cut",
        "late",
        "watch lag",
        "watch dropped",
        "compaction",
    ];

    /// The kind of fault.
    pub const fn name(self) -> &'static str {
        Self::NAMES[match self {
            Self::Refused(_) => 0,
            Self::Hang => 1,
            Self::LostAnswer => 2,
            Self::Cut => 3,
            Self::Late(_) => 4,
            Self::WatchLag(_) => 5,
            Self::WatchDropped(_) => 6,
            Self::Compaction => 7,
        }]
    }

    fn of(random: u64, is_watch: bool) -> Self {
        let millis = |most: u64| Duration::from_millis((random >> 16) % most);
        if is_watch {
            return match random % 8 {
                0 => Self::Refused(429),
                1 => Self::Hang,
                2 | 3 => Self::Compaction,
                4 | 5 => Self::WatchLag(millis(5_000)),
                _ => Self::WatchDropped(millis(20_000)),
            };
        }
        match random % 8 {
            0 => Self::Refused(429),
            1 => Self::Refused([500, 503, 504][usize::from(random.to_be_bytes()[0] % 3)]),
            2 => Self::Hang,
            3 | 4 => Self::LostAnswer,
            5 => Self::Cut,
            _ => Self::Late(millis(8_000)),
        }
    }
}

// === impl Plan ===

impl Plan {
    /// A plan with faults of this many of a thousand requests. The default has none.
    pub fn new(seed: u64, rate: u64) -> Self {
        Self {
            seed,
            rate,
            ..Self::default()
        }
    }

    /// The same plan without the faults of these requests.
    #[must_use]
    pub fn without(self, requests: impl IntoIterator<Item = RequestId>) -> Self {
        let mut without = self.without;
        without.extend(requests);
        Self { without, ..self }
    }

    /// Ends all faults from now on.
    pub fn end(&mut self) {
        self.rate = 0;
    }

    /// The faults until now.
    pub fn happened(&self) -> &[(RequestId, Fault)] {
        &self.happened
    }

    /// Returns the number of faults of each kind that have happened.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<_, _> = Fault::NAMES.map(|name| (name, 0)).into();
        for (_, fault) in &self.happened {
            *counts.entry(fault.name()).or_default() += 1;
        }
        counts
    }

    /// The fault of a request.
    pub(crate) fn fault(&mut self, request: RequestId, is_watch: bool) -> Option<Fault> {
        let (link, number) = &request;
        let random = link
            .bytes()
            .fold(mix(self.seed), |hash, byte| mix(hash ^ u64::from(byte)));
        let random = mix(random ^ number);
        if random % 1_000 >= self.rate || self.without.contains(&request) {
            return None;
        }
        let fault = Fault::of(mix(random), is_watch);
        self.happened.push((request, fault));
        Some(fault)
    }
}

/// `SplitMix64`.
const fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(mut plan: Plan) -> Vec<(RequestId, Fault)> {
        for number in 0..4_000 {
            for link in ["a hub", "b hub"] {
                plan.fault((link.to_owned(), number), number % 2 == 0);
            }
        }
        plan.happened
    }

    #[test]
    fn without_some_faults_the_others_stay() {
        let all = faults(Plan::new(7, 50));
        let (gone, kept): (Vec<_>, Vec<_>) =
            all.into_iter().enumerate().partition(|(n, _)| n % 3 == 0);
        let gone = gone.into_iter().map(|(_, (request, _))| request);
        let kept: Vec<_> = kept.into_iter().map(|(_, happened)| happened).collect();
        assert_eq!(faults(Plan::new(7, 50).without(gone)), kept);
    }
}
