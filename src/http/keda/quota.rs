//! Limits of the streams or requests that are open at a time: in total, and for each peer, which is an address.
//!
//! ```text
//! 8192 permits, 4096 per peer
//!     a: 4096           ── a asks for another ──► refused
//!     a: 4096, b: 4096  ── KEDA asks for one ───► the newest permit of a is evicted
//! ```
//!
//! If all permits are in use, the peer with the most loses one to a peer with fewer. Idle streams of one peer therefore
//! cannot exclude another: every peer can get an equal share.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;
use tonic::Status;

use crate::clock::{Clock, Monotonic};

/// A flood of requests writes at most one line to the log in this time.
const WARNING_PERIOD: Duration = Duration::from_mins(1);

/// The permits of one kind, shared by all peers.
#[derive(Debug)]
pub(super) struct Quota {
    limits: Limits,
    usage: Mutex<Usage>,
    clock: Clock,
}

/// How many permits of a kind there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// What needs a permit, in the plural.
    pub(super) what: &'static str,
    pub(super) total: usize,
    pub(super) per_peer: usize,
    /// What a client that needs more can do.
    pub(super) advice: &'static str,
}

#[derive(Debug, Default)]
struct Usage {
    /// The peers that hold permits.
    peers: BTreeMap<IpAddr, PeerUsage>,
    /// All permits in use, without evicted ones.
    count: usize,
    next_id: u64,
    /// When it was last logged that a limit was reached.
    warned: Option<Monotonic>,
}

#[derive(Debug, Default)]
struct PeerUsage {
    /// In the order in which they were acquired.
    held: BTreeMap<u64, oneshot::Sender<()>>,
    /// How many were evicted and are not dropped yet: the answers that a client does not read stay in memory.
    evicted: usize,
}

/// The right to keep one stream or request open; dropping it releases the permit.
#[derive(Debug)]
pub(super) struct Permit {
    quota: Arc<Quota>,
    peer: IpAddr,
    id: u64,
    evicted: oneshot::Receiver<()>,
}

// === impl Quota ===

impl Quota {
    pub(super) fn new(limits: Limits, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            limits,
            usage: Mutex::default(),
            clock,
        })
    }

    /// Acquires a permit for this peer.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the peer is at its limit, or if all permits are in use and no other peer holds more.
    pub(super) fn acquire(self: &Arc<Self>, peer: IpAddr) -> Result<Permit, Status> {
        let mut usage = self.usage();
        let (own, evicted) = usage.of_peer(peer);
        let Limits {
            total, per_peer, ..
        } = self.limits;
        let is_full = usage.count >= total;
        if own + evicted >= per_peer || (is_full && !usage.evict(own)) {
            // `refused` takes the lock to write to the log.
            drop(usage);
            return Err(self.refused(peer));
        }
        let (evict, evicted) = oneshot::channel();
        let id = usage.next_id;
        usage.next_id += 1;
        usage.count += 1;
        let of_peer = usage.peers.entry(peer).or_default();
        of_peer.held.insert(id, evict);
        drop(usage);
        if is_full {
            self.warn(peer);
        }
        Ok(Permit {
            quota: Arc::clone(self),
            peer,
            id,
            evicted,
        })
    }

    fn refused(&self, peer: IpAddr) -> Status {
        let Limits {
            what,
            total,
            per_peer,
            advice,
        } = self.limits;
        self.warn(peer);
        Status::resource_exhausted(format!(
            "too many {what}: at most {per_peer} per address and {total} in total; {advice}"
        ))
    }

    /// Logs which peer reached a limit, at most once in [`WARNING_PERIOD`].
    fn warn(&self, peer: IpAddr) {
        let mut usage = self.usage();
        let now = self.clock.monotonic();
        let is_recent = |warned| now.since(warned) < WARNING_PERIOD;
        if usage.warned.is_some_and(is_recent) {
            return;
        }
        usage.warned = Some(now);
        let (own, _) = usage.of_peer(peer);
        let (open, peers) = (usage.count, usage.peers.len());
        drop(usage);
        let what = self.limits.what;
        tracing::warn!(%peer, own, open, peers, "too many {what}: one was refused or evicted");
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.usage().count
    }
}

// === impl Usage ===

impl Usage {
    /// How many permits a peer holds, and how many of its evicted ones are not dropped yet.
    fn of_peer(&self, peer: IpAddr) -> (usize, usize) {
        let of_peer = self.peers.get(&peer);
        of_peer.map_or((0, 0), |it| (it.held.len(), it.evicted))
    }

    /// Evicts the newest permit of the peer with the most, for a peer that holds `own`; false if no peer has enough.
    fn evict(&mut self, own: usize) -> bool {
        let largest = self.peers.values_mut().max_by_key(|it| it.held.len());
        // Two peers that differ by one would otherwise evict each other in turn.
        let Some(largest) = largest.filter(|it| it.held.len() > own + 1) else {
            return false;
        };
        // A closed channel tells the holder.
        drop(largest.held.pop_last());
        largest.evicted += 1;
        self.count -= 1;
        true
    }
}

// === impl Permit ===

impl Permit {
    /// Waits until the permit is evicted; returns the status to end the stream or request with.
    pub(super) async fn evicted(&mut self) -> Status {
        // Nothing is sent; the channel closes.
        drop((&mut self.evicted).await);
        let Limits { what, advice, .. } = self.quota.limits;
        Status::resource_exhausted(format!(
            "too many {what}: evicted in favor of a client that has fewer; {advice}"
        ))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut usage = self.quota.usage();
        let Some(of_peer) = usage.peers.get_mut(&self.peer) else {
            return;
        };
        let was_held = of_peer.held.remove(&self.id).is_some();
        of_peer.evicted -= usize::from(!was_held);
        if of_peer.held.is_empty() && of_peer.evicted == 0 {
            usage.peers.remove(&self.peer);
        }
        usage.count -= usize::from(was_held);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn quota(total: usize, per_peer: usize) -> Arc<Quota> {
        Quota::new(
            Limits {
                what: "streams",
                total,
                per_peer,
                advice: "close some",
            },
            Clock::system(),
        )
    }

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn is_evicted(permit: &mut Permit) -> bool {
        permit.evicted().now_or_never().is_some()
    }

    #[test]
    fn each_peer_has_a_limit_and_a_dropped_permit_is_free_again() {
        let quota = quota(4, 2);
        let first = quota.acquire(peer(1)).unwrap();
        let _second = quota.acquire(peer(1)).unwrap();
        let refused = quota.acquire(peer(1)).unwrap_err();
        let message = "too many streams: at most 2 per address and 4 in total; close some";
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::ResourceExhausted, message)
        );
        let _other = quota.acquire(peer(2)).unwrap();
        drop(first);
        assert!(quota.acquire(peer(1)).is_ok());
        assert_eq!(quota.count(), 2);
    }

    #[test]
    fn a_full_quota_evicts_the_newest_permit_of_the_peer_with_the_most() {
        let quota = quota(4, 4);
        let mut idle: Vec<Permit> = (0..4).map(|_| quota.acquire(peer(1)).unwrap()).collect();
        let of_keda = [
            quota.acquire(peer(2)).unwrap(),
            quota.acquire(peer(2)).unwrap(),
        ];
        // Both have two.
        assert!(quota.acquire(peer(2)).is_err());
        assert!(quota.acquire(peer(1)).is_err());
        let ended = idle
            .iter_mut()
            .map(|permit| permit.evicted().now_or_never());
        let codes: Vec<_> = ended.map(|it| it.map(|status| status.code())).collect();
        let exhausted = Some(Code::ResourceExhausted);
        assert_eq!(codes, [None, None, exhausted, exhausted]);
        drop((idle, of_keda));
        assert_eq!((quota.count(), quota.usage().peers.len()), (0, 0));
    }

    #[test]
    fn an_evicted_permit_counts_for_its_peer_until_it_is_dropped() {
        let quota = quota(2, 2);
        let mut idle = [
            quota.acquire(peer(1)).unwrap(),
            quota.acquire(peer(1)).unwrap(),
        ];
        let of_keda = quota.acquire(peer(2)).unwrap();
        assert!(is_evicted(&mut idle[1]));
        drop(of_keda);
        assert!(
            quota.acquire(peer(1)).is_err(),
            "the evicted permit is not dropped yet"
        );
        drop(idle);
        assert!(quota.acquire(peer(1)).is_ok());
    }

    proptest! {
        /// A peer gets an equal share of the permits, no matter how many the others hold.
        #[test]
        fn a_peer_gets_its_share(
            total in 1_usize..40,
            others in prop::collection::vec(0_usize..40, 0..6),
        ) {
            let quota = quota(total, 30);
            let mut held = Vec::new();
            for (other, wanted) in (1..).zip(&others) {
                held.extend((0..*wanted).filter_map(|_| quota.acquire(peer(other)).ok()));
            }
            let share = (total / (others.len() + 1)).min(30);
            let mut own: Vec<Permit> = (0..share).map(|_| quota.acquire(peer(0)).unwrap()).collect();
            prop_assert!(quota.count() <= total);
            prop_assert!(!own.iter_mut().any(is_evicted));
            let open = held.iter_mut().chain(&mut own);
            prop_assert_eq!(open.filter_map(|permit| (!is_evicted(permit)).then_some(())).count(), quota.count());
            drop((held, own));
            prop_assert_eq!(quota.count(), 0);
        }
    }
}
