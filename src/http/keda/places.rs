//! How many streams or requests may be open at a time: in total, and of one peer, which is an address.
//!
//! ```text
//! 8192 places, 4096 of one peer
//!     a: 4096           ── another of a ──► refused
//!     a: 4096, b: 4096  ── one of KEDA ───► the newest of a ends for it
//! ```
//!
//! Where all are taken, one of the peer that has the most ends for one of a peer that has fewer. So no number of idle
//! streams keeps another peer out: it gets as many as any other.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::SignedDuration;
use tokio::sync::oneshot;
use tonic::Status;

use crate::clock::Contact;

/// A flood is one line of the log in this time.
const WARNING_PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// Places of one kind.
#[derive(Debug)]
pub(super) struct Places {
    limits: Limits,
    taken: Mutex<Taken>,
}

/// How many places there are, and of what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// What a place is for, in the plural.
    pub(super) what: &'static str,
    pub(super) total: usize,
    /// Of one peer.
    pub(super) of_peer: usize,
    /// What whoever needs more can do.
    pub(super) advice: &'static str,
}

#[derive(Debug, Default)]
struct Taken {
    /// The peers that have any.
    of_peers: BTreeMap<IpAddr, OfPeer>,
    /// Those that are not displaced.
    count: usize,
    /// Number of the next place.
    next: u64,
    warned: Option<Contact>,
}

#[derive(Debug, Default)]
struct OfPeer {
    /// In the order in which they were taken.
    held: BTreeMap<u64, oneshot::Sender<()>>,
    /// How many were displaced and are still there: a client that does not read keeps what it was sent.
    ending: usize,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    peer: IpAddr,
    number: u64,
    displaced: oneshot::Receiver<()>,
}

// === impl Places ===

impl Places {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { limits, taken })
    }

    /// A place for this peer.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the peer has as many as it may have, or if all are taken and no other peer has more.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Result<Place, Status> {
        let mut taken = self.taken();
        let (own, ending) = taken.of_peer(peer);
        let Limits { total, of_peer, .. } = self.limits;
        let is_full = taken.count >= total;
        if own + ending >= of_peer || (is_full && !taken.displace(own)) {
            drop(taken);
            return Err(self.refused(peer));
        }
        let (displace, displaced) = oneshot::channel();
        let number = taken.next;
        taken.next += 1;
        taken.count += 1;
        let of_peer = taken.of_peers.entry(peer).or_default();
        of_peer.held.insert(number, displace);
        drop(taken);
        if is_full {
            self.warn(peer);
        }
        Ok(Place {
            places: Arc::clone(self),
            peer,
            number,
            displaced,
        })
    }

    fn refused(&self, peer: IpAddr) -> Status {
        let Limits {
            what,
            total,
            of_peer,
            advice,
        } = self.limits;
        self.warn(peer);
        Status::resource_exhausted(format!(
            "too many {what}: at most {of_peer} of one address, and {total} in all, are served; {advice}"
        ))
    }

    /// Says who met the limit, once in a while.
    fn warn(&self, peer: IpAddr) {
        let mut taken = self.taken();
        let is_recent = |warned: &Contact| warned.age() < WARNING_PERIOD;
        if taken.warned.as_ref().is_some_and(is_recent) {
            return;
        }
        taken.warned = Some(Contact::now());
        let (own, _) = taken.of_peer(peer);
        let (open, peers) = (taken.count, taken.of_peers.len());
        drop(taken);
        let what = self.limits.what;
        tracing::warn!(%peer, own, open, peers, "too many {what}: one is refused or ended for another");
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.taken().count
    }
}

// === impl Taken ===

impl Taken {
    /// How many a peer holds, and how many of its own are ending.
    fn of_peer(&self, peer: IpAddr) -> (usize, usize) {
        let of_peer = self.of_peers.get(&peer);
        of_peer.map_or((0, 0), |it| (it.held.len(), it.ending))
    }

    /// Ends the newest of the peer that has the most, for one of a peer that has `own`.
    fn displace(&mut self, own: usize) -> bool {
        let largest = self.of_peers.values_mut().max_by_key(|it| it.held.len());
        // From one that has one more, it would only change sides.
        let Some(largest) = largest.filter(|it| it.held.len() > own + 1) else {
            return false;
        };
        // The place sees that its sender is gone.
        drop(largest.held.pop_last());
        largest.ending += 1;
        self.count -= 1;
        true
    }
}

// === impl Place ===

impl Place {
    /// Waits until the place is needed for another peer; the status says so.
    pub(super) async fn displaced(&mut self) -> Status {
        // It is never sent.
        drop((&mut self.displaced).await);
        let Limits { what, advice, .. } = self.places.limits;
        Status::resource_exhausted(format!(
            "too many {what}: this one ended for a client that has fewer; {advice}"
        ))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        let Some(of_peer) = taken.of_peers.get_mut(&self.peer) else {
            return;
        };
        let was_held = of_peer.held.remove(&self.number).is_some();
        of_peer.ending -= usize::from(!was_held);
        if of_peer.held.is_empty() && of_peer.ending == 0 {
            taken.of_peers.remove(&self.peer);
        }
        taken.count -= usize::from(was_held);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn places(total: usize, of_peer: usize) -> Arc<Places> {
        Places::new(Limits {
            what: "streams",
            total,
            of_peer,
            advice: "close some",
        })
    }

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn is_displaced(place: &mut Place) -> bool {
        place.displaced().now_or_never().is_some()
    }

    #[test]
    fn a_peer_has_a_limit_of_its_own_and_gets_a_place_back() {
        let places = places(4, 2);
        let first = places.take(peer(1)).unwrap();
        let _second = places.take(peer(1)).unwrap();
        let refused = places.take(peer(1)).unwrap_err();
        let message =
            "too many streams: at most 2 of one address, and 4 in all, are served; close some";
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::ResourceExhausted, message)
        );
        let _other = places.take(peer(2)).unwrap();
        drop(first);
        assert!(places.take(peer(1)).is_ok());
        assert_eq!(places.count(), 2);
    }

    #[test]
    fn where_all_are_taken_the_newest_of_who_has_the_most_ends_for_who_has_fewer() {
        let places = places(4, 4);
        let mut idle: Vec<Place> = (0..4).map(|_| places.take(peer(1)).unwrap()).collect();
        let of_keda = [places.take(peer(2)).unwrap(), places.take(peer(2)).unwrap()];
        // Both have two.
        assert!(places.take(peer(2)).is_err());
        assert!(places.take(peer(1)).is_err());
        let ended = idle
            .iter_mut()
            .map(|place| place.displaced().now_or_never());
        let codes: Vec<_> = ended.map(|it| it.map(|status| status.code())).collect();
        let exhausted = Some(Code::ResourceExhausted);
        assert_eq!(codes, [None, None, exhausted, exhausted]);
        drop((idle, of_keda));
        assert_eq!((places.count(), places.taken().of_peers.len()), (0, 0));
    }

    #[test]
    fn one_that_is_displaced_counts_for_its_peer_until_it_is_gone() {
        let places = places(2, 2);
        let mut idle = [places.take(peer(1)).unwrap(), places.take(peer(1)).unwrap()];
        let of_keda = places.take(peer(2)).unwrap();
        assert!(is_displaced(&mut idle[1]));
        drop(of_keda);
        assert!(
            places.take(peer(1)).is_err(),
            "it has not taken the end of one"
        );
        drop(idle);
        assert!(places.take(peer(1)).is_ok());
    }

    proptest! {
        /// Whatever others hold, a peer gets as many as if the places were divided among all of them.
        #[test]
        fn a_peer_gets_its_share(
            total in 1_usize..40,
            others in prop::collection::vec(0_usize..40, 0..6),
        ) {
            let places = places(total, 30);
            let mut held = Vec::new();
            for (other, wanted) in (1..).zip(&others) {
                held.extend((0..*wanted).filter_map(|_| places.take(peer(other)).ok()));
            }
            let share = (total / (others.len() + 1)).min(30);
            let mut own: Vec<Place> = (0..share).map(|_| places.take(peer(0)).unwrap()).collect();
            prop_assert!(places.count() <= total);
            prop_assert!(!own.iter_mut().any(is_displaced));
            let open = held.iter_mut().chain(&mut own);
            prop_assert_eq!(open.filter_map(|place| (!is_displaced(place)).then_some(())).count(), places.count());
            drop((held, own));
            prop_assert_eq!(places.count(), 0);
        }
    }
}
