//! Limits of what clients hold for as long as they like, such as streams, requests and bytes: in total, and for each
//! holder, which is an address or a reader.
//!
//! ```text
//! 8192 streams, 4096 per address
//!     a: 4096           ── a asks for another ──► refused
//!     a: 4096, b: 4096  ── KEDA asks for one ───► the newest permit of a is evicted
//! ```
//!
//! If everything is in use, the holder with the most loses its newest permit to one with less. Idle streams of one
//! holder therefore cannot exclude another: every holder can get an equal share.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use derive_where::derive_where;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::{Clock, LogPace};

/// The permits of one kind, shared by all holders.
#[derive(Debug)]
pub struct Quota<H: Holder> {
    limits: Limits,
    usage: Mutex<Usage<H>>,
    clock: Clock,
}

/// Key by which permits are counted: an address, or the name of a reader.
pub trait Holder: Ord + Clone + Debug {}

impl<H: Ord + Clone + Debug> Holder for H {}

/// Limits of one kind of permits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Name of the things that need a permit, in the plural.
    pub what: &'static str,
    /// Most permits in use together.
    pub total: usize,
    /// Most permits of one holder.
    pub per_holder: usize,
    /// Name of a holder, such as an address.
    pub holder: &'static str,
    /// Advice to a client that needs more.
    pub advice: &'static str,
}

#[derive(Debug)]
#[derive_where(Default)]
struct Usage<H> {
    /// Holders of permits.
    holders: BTreeMap<H, Held>,
    /// The sizes of all permits in use, without evicted ones.
    size: usize,
    next_id: u64,
    /// Pace of the log line about a limit that was reached.
    log_pace: LogPace,
}

/// Permits of one holder.
#[derive(Debug, Default)]
struct Held {
    /// Size of each permit with the channel whose end tells that it is evicted; in the order in which they were
    /// acquired.
    permits: BTreeMap<u64, (usize, oneshot::Sender<()>)>,
    size: usize,
    /// Sum of the sizes of evicted permits that are not dropped yet: data that a client does not read stay in memory.
    evicted: usize,
}

/// The right to hold one thing, such as a stream or a request; dropping it releases the permit.
#[derive(Debug)]
pub struct Permit<H: Holder> {
    quota: Arc<Quota<H>>,
    holder: H,
    id: u64,
    size: usize,
    evicted: oneshot::Receiver<()>,
}

/// Reason for which there is no permit, or no longer; a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub struct Exhausted(String);

// === impl Quota ===

impl<H: Holder> Quota<H> {
    /// A quota of which nothing is in use.
    pub fn new(limits: Limits, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            limits,
            usage: Mutex::default(),
            clock,
        })
    }

    /// Acquires a permit of size one.
    ///
    /// # Errors
    /// The holder is at its limit, or everything is in use and no other holds more.
    pub fn acquire(self: &Arc<Self>, holder: H) -> Result<Permit<H>, Exhausted> {
        self.acquire_many(holder, 1)
    }

    /// Acquires a permit of this size, as [`acquire`](Self::acquire) does for size one.
    ///
    /// # Errors
    /// The holder is at its limit, or all is in use and no other holds more.
    pub fn acquire_many(self: &Arc<Self>, holder: H, size: usize) -> Result<Permit<H>, Exhausted> {
        let mut usage = self.usage.lock();
        let (own, evicted) = usage.of_holder(&holder);
        let Limits {
            total, per_holder, ..
        } = self.limits;
        let is_full = usage.size + size > total;
        if own + evicted + size > per_holder || !usage.make_room(total, own, size) {
            // `refused` takes the lock to write to the log.
            drop(usage);
            return Err(self.refused(&holder));
        }
        let (evict, evicted) = oneshot::channel();
        let id = usage.next_id;
        usage.next_id += 1;
        usage.size += size;
        let of_holder = usage.holders.entry(holder.clone()).or_default();
        of_holder.permits.insert(id, (size, evict));
        of_holder.size += size;
        drop(usage);
        if is_full {
            self.warn(&holder);
        }
        Ok(Permit {
            quota: Arc::clone(self),
            holder,
            id,
            size,
            evicted,
        })
    }

    fn refused(&self, holder: &H) -> Exhausted {
        self.warn(holder);
        let Limits {
            what,
            total,
            per_holder,
            holder,
            advice,
        } = self.limits;
        Exhausted(format!(
            "too many {what}: at most {per_holder} per {holder} and {total} in total; {advice}"
        ))
    }

    /// Logs the holder that reached a limit, at most once in a minute.
    fn warn(&self, holder: &H) {
        let mut usage = self.usage.lock();
        if !usage.log_pace.admits(self.clock.monotonic()) {
            return;
        }
        let (own, _) = usage.of_holder(holder);
        let (open, holders) = (usage.size, usage.holders.len());
        drop(usage);
        let what = self.limits.what;
        tracing::warn!(
            ?holder,
            own,
            open,
            holders,
            "too many {what}: one was refused or evicted"
        );
    }

    /// Permits in use.
    pub fn count(&self) -> usize {
        self.usage.lock().size
    }
}

// === impl Usage ===

impl<H: Ord> Usage<H> {
    /// The size of a holder's permits, and that of its evicted permits that are not dropped yet.
    fn of_holder(&self, holder: &H) -> (usize, usize) {
        let held = self.holders.get(holder);
        held.map_or((0, 0), |it| (it.size, it.evicted))
    }

    /// Evicts the newest permits of the holders with the most, until `size` more fit for one that holds `own`; false if
    /// no holder has enough for that.
    fn make_room(&mut self, total: usize, own: usize, size: usize) -> bool {
        while self.size + size > total {
            let largest = self.holders.values_mut().max_by_key(|it| it.size);
            // Holders that differ by less would otherwise evict each other in turn.
            let Some(largest) = largest.filter(|it| it.size > own + size) else {
                return false;
            };
            let Some((_, (evicted, _tells))) = largest.permits.pop_last() else {
                return false;
            };
            // Dropping the sender closes the channel, which tells the holder.
            largest.size -= evicted;
            largest.evicted += evicted;
            self.size -= evicted;
        }
        true
    }
}

// === impl Permit ===

impl<H: Holder> Permit<H> {
    /// Waits until the permit is evicted; returns the reason for the client.
    pub async fn evicted(&mut self) -> Exhausted {
        // Nothing is sent; the channel closes.
        drop((&mut self.evicted).await);
        let Limits { what, advice, .. } = self.quota.limits;
        Exhausted(format!(
            "too many {what}: evicted in favor of a client that has fewer; {advice}"
        ))
    }
}

impl<H: Holder> Drop for Permit<H> {
    fn drop(&mut self) {
        let mut usage = self.quota.usage.lock();
        let Some(of_holder) = usage.holders.get_mut(&self.holder) else {
            return;
        };
        let was_held = of_holder.permits.remove(&self.id).is_some();
        if was_held {
            of_holder.size -= self.size;
        } else {
            of_holder.evicted -= self.size;
        }
        if of_holder.permits.is_empty() && of_holder.evicted == 0 {
            usage.holders.remove(&self.holder);
        }
        usage.size -= if was_held { self.size } else { 0 };
    }
}

// === impl Exhausted ===

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    fn quota(total: usize, per_holder: usize) -> Arc<Quota<IpAddr>> {
        Quota::new(
            Limits {
                what: "streams",
                total,
                per_holder,
                holder: "address",
                advice: "close some",
            },
            Clock::system(),
        )
    }

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn is_evicted(permit: &mut Permit<IpAddr>) -> bool {
        permit.evicted().now_or_never().is_some()
    }

    #[test]
    fn each_peer_has_a_limit_and_a_dropped_permit_is_free_again() {
        let quota = quota(4, 2);
        let first = quota.acquire(peer(1)).unwrap();
        let _second = quota.acquire(peer(1)).unwrap();
        let refused = quota.acquire(peer(1)).unwrap_err();
        let message = "too many streams: at most 2 per address and 4 in total; close some";
        assert_eq!(refused.to_string(), message);
        let _other = quota.acquire(peer(2)).unwrap();
        drop(first);
        assert!(quota.acquire(peer(1)).is_ok());
        assert_eq!(quota.count(), 2);
    }

    #[test]
    fn a_full_quota_evicts_the_newest_permit_of_the_peer_with_the_most() {
        let quota = quota(4, 4);
        let mut idle: Vec<Permit<IpAddr>> =
            (0..4).map(|_| quota.acquire(peer(1)).unwrap()).collect();
        let of_keda = [
            quota.acquire(peer(2)).unwrap(),
            quota.acquire(peer(2)).unwrap(),
        ];
        // Both peers have two.
        assert!(quota.acquire(peer(2)).is_err());
        assert!(quota.acquire(peer(1)).is_err());
        let ended = idle
            .iter_mut()
            .map(|permit| permit.evicted().now_or_never());
        let ended: Vec<_> = ended.map(|it| it.is_some()).collect();
        assert_eq!(ended, [false, false, true, true]);
        drop((idle, of_keda));
        assert_eq!((quota.count(), quota.usage.lock().holders.len()), (0, 0));
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

    #[test]
    fn sizes_are_divided_as_permits_are() {
        let quota = quota(16, 16);
        let mut large = [(); 4].map(|()| quota.acquire_many(peer(1), 4).unwrap());
        let _small = quota.acquire_many(peer(2), 3).unwrap();
        let evicted = large.each_mut().map(is_evicted);
        assert_eq!(evicted, [false, false, false, true]);
        // The evicted permit is in memory until it is dropped.
        assert!(quota.acquire_many(peer(1), 1).is_err());
        drop(large);
        assert_eq!(quota.count(), 3);
        assert!(quota.acquire_many(peer(1), 17).is_err());
    }

    proptest! {
        /// A peer gets an equal share of the permits, no matter how many other peers hold.
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
            let mut own: Vec<Permit<IpAddr>> = (0..share).map(|_| quota.acquire(peer(0)).unwrap()).collect();
            prop_assert!(quota.count() <= total);
            prop_assert!(!own.iter_mut().any(is_evicted));
            let open = held.iter_mut().chain(&mut own);
            prop_assert_eq!(open.filter_map(|permit| (!is_evicted(permit)).then_some(())).count(), quota.count());
            drop((held, own));
            prop_assert_eq!(quota.count(), 0);
        }
    }
}
