//! Queue of the objects that are due: every object once per sync period, spread over the period by namespace.
//!
//! Objects of one namespace share their instant, so that one list of pod metrics serves them all; different namespaces
//! are spread out, so that a restart causes no burst of requests. A changed spec is due at once.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::SignedDuration;

use foretide_base::clock::Monotonic;

/// The fields of one object that the queue needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Identity of the object.
    pub uid: &'a str,
    pub namespace: &'a str,
    pub generation: i64,
}

/// Maximum number of instants of a period that objects share: every turn of the loop goes through all objects, so the
/// number of turns must not grow with the namespaces.
const INSTANTS: u64 = 32;

#[derive(Debug, Clone, Copy)]
struct Slot {
    generation: i64,
    next: Monotonic,
}

/// The time at which each known object is due next.
#[derive(Debug)]
pub struct WorkQueue {
    period: SignedDuration,
    slots: HashMap<String, Slot>,
}

// === impl WorkQueue ===

impl WorkQueue {
    /// An empty queue; `period` is the time between two decisions about one object.
    pub fn new(period: SignedDuration) -> Self {
        Self {
            period,
            slots: HashMap::new(),
        }
    }

    /// The positions in `known` of the objects due at `now`, longest overdue first.
    ///
    /// Objects that are no longer known are forgotten.
    ///
    /// # Guarantees
    /// - A new object and an object of a new generation are due.
    /// - Between two calls at most a period apart, no object waits longer than two periods, whatever the wall clock
    ///   does.
    pub fn due(&mut self, known: &[Entry<'_>], now: Monotonic) -> Vec<usize> {
        let uids: HashSet<&str> = known.iter().map(|entry| entry.uid).collect();
        self.slots.retain(|uid, _| uids.contains(uid.as_str()));
        let mut due: Vec<(Monotonic, usize)> = known
            .iter()
            .enumerate()
            .filter_map(|(position, entry)| Some((self.overdue_since(entry, now)?, position)))
            .collect();
        due.sort_unstable();
        for (_, position) in &due {
            if let Some(entry) = known.get(*position) {
                let slot = Slot {
                    generation: entry.generation,
                    // After `now`, not after its last turn: turns that were missed are not repeated.
                    next: self.next_slot(entry, now),
                };
                self.slots.insert(entry.uid.to_owned(), slot);
            }
        }
        due.into_iter().map(|(_, position)| position).collect()
    }

    /// Time from `now` until the next object is due; at most one period.
    pub fn until_next(&self, now: Monotonic) -> SignedDuration {
        let next = self.slots.values().map(|slot| slot.next).min();
        // Also if the only object is postponed for longer: the loop would take that wait for a pause of the process.
        next.map_or(self.period, |next| signed(next.since(now)))
            .min(self.period)
    }

    /// Makes an object due again after `delay`, before its regular turn.
    pub fn again(&mut self, uid: &str, now: Monotonic, delay: SignedDuration) {
        if let Some(slot) = self.slots.get_mut(uid) {
            slot.next = slot.next.min(now + delay.unsigned_abs());
        }
    }

    /// Lets an object wait for `delay`, unless its spec changes.
    pub fn postpone(&mut self, uid: &str, now: Monotonic, delay: SignedDuration) {
        if let Some(slot) = self.slots.get_mut(uid) {
            slot.next = now + delay.unsigned_abs();
        }
    }

    /// Delay of the object that is longest overdue; zero if none is.
    pub fn lateness(&self, now: Monotonic) -> SignedDuration {
        let next = self.slots.values().map(|slot| slot.next).min();
        next.map_or(SignedDuration::ZERO, |next| signed(now.since(next)))
    }

    fn overdue_since(&self, entry: &Entry<'_>, now: Monotonic) -> Option<Monotonic> {
        match self.slots.get(entry.uid) {
            Some(slot) if slot.generation == entry.generation => {
                (slot.next <= now).then_some(slot.next)
            }
            // New objects and new generations come before everything that is overdue.
            _ => Some(Monotonic::default()),
        }
    }

    /// The first instant after `now` that belongs to the object's namespace.
    fn next_slot(&self, entry: &Entry<'_>, now: Monotonic) -> Monotonic {
        // At least 1, because it is a divisor.
        let period = self.period.unsigned_abs().as_millis().max(1);
        // By namespace, because usage is read once per namespace for all objects that are due together. `DefaultHasher`
        // has fixed keys, so a namespace has the same instant in every run.
        let mut hasher = DefaultHasher::new();
        entry.namespace.hash(&mut hasher);
        let offset = u128::from(hasher.finish() % INSTANTS) * period / u128::from(INSTANTS);
        let elapsed = now.since(Monotonic::default()).as_millis();
        // `offset` is less than a period, so this does not underflow.
        let since = (elapsed + period - offset) % period;
        let wait = u64::try_from(period - since).unwrap_or(u64::MAX);
        now + Duration::from_millis(wait)
    }
}

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: SignedDuration = SignedDuration::from_secs(15);

    fn at(millis: u64) -> Monotonic {
        Monotonic::after_origin(Duration::from_millis(1_700_000_000 + millis))
    }

    fn entry(uid: &'static str, generation: i64) -> Entry<'static> {
        Entry {
            uid,
            namespace: "shop",
            generation,
        }
    }

    #[test]
    fn a_new_object_is_due_at_once_and_then_once_per_period() {
        let mut schedule = WorkQueue::new(PERIOD);
        assert_eq!(schedule.due(&[entry("a", 1)], at(0)), [0]);
        let visits =
            (1..=60).filter(|second| !schedule.due(&[entry("a", 1)], at(second * 1000)).is_empty());
        assert_eq!(visits.count(), 4);
    }

    #[test]
    fn a_changed_spec_is_due_at_once() {
        let mut schedule = WorkQueue::new(PERIOD);
        schedule.due(&[entry("a", 1)], at(0));
        assert_eq!(schedule.due(&[entry("a", 1)], at(1)), Vec::<usize>::new());
        assert_eq!(schedule.due(&[entry("a", 2)], at(1)), [0]);
    }

    #[test]
    fn objects_of_one_namespace_come_due_together() {
        let mut schedule = WorkQueue::new(PERIOD);
        let known = [entry("a", 1), entry("b", 1)];
        schedule.due(&known, at(0));
        let wait = schedule.until_next(at(0));
        let then = at(u64::try_from(wait.as_millis()).unwrap());
        assert_eq!(schedule.due(&known, then).len(), 2);
    }

    #[test]
    fn a_thousand_namespaces_share_a_few_instants() {
        let names: Vec<String> = (0..1000).map(|n| format!("team-{n}")).collect();
        let known: Vec<Entry<'_>> = names
            .iter()
            .map(|name| Entry {
                uid: name,
                namespace: name,
                generation: 1,
            })
            .collect();
        let mut schedule = WorkQueue::new(PERIOD);
        schedule.due(&known, at(0));
        let (mut now, mut looks) = (0, 0);
        while now < 15_000 {
            let wait = schedule.until_next(at(now)).as_millis();
            now += u64::try_from(wait).unwrap().max(1);
            looks += i32::from(!schedule.due(&known, at(now)).is_empty());
        }
        assert!((16..=33).contains(&looks), "{looks}");
    }

    #[test]
    fn a_forgotten_object_does_not_shorten_the_wait() {
        let mut schedule = WorkQueue::new(PERIOD);
        schedule.due(&[entry("a", 1)], at(0));
        schedule.due(&[], at(1));
        assert_eq!(schedule.until_next(at(1)), PERIOD);
    }

    #[test]
    fn an_object_that_must_be_seen_again_soon_is() {
        let mut schedule = WorkQueue::new(PERIOD);
        schedule.due(&[entry("a", 1)], at(0));
        schedule.again("a", at(0), SignedDuration::from_secs(1));
        assert!(schedule.until_next(at(0)) <= SignedDuration::from_secs(1));
    }

    #[test]
    fn what_has_waited_longest_comes_first() {
        let mut schedule = WorkQueue::new(PERIOD);
        let known = [entry("a", 1), entry("b", 1), entry("c", 1)];
        schedule.due(&known, at(0));
        for (uid, second) in [("a", 3), ("b", 1), ("c", 2)] {
            schedule.again(uid, at(0), SignedDuration::from_secs(second));
        }
        assert_eq!(schedule.due(&known, at(60_000)), [1, 2, 0]);
    }

    proptest! {
        #[test]
        fn every_object_is_visited_within_two_periods(
            gaps in prop::collection::vec(1_u64..15_000, 1..200),
            namespaces in prop::collection::vec("[a-z]{1,8}", 1..20),
        ) {
            let uids: Vec<String> = (0..namespaces.len()).map(|n| format!("uid-{n}")).collect();
            let known: Vec<Entry<'_>> = uids
                .iter()
                .zip(&namespaces)
                .map(|(uid, namespace)| Entry { uid, namespace, generation: 1 })
                .collect();
            let mut schedule = WorkQueue::new(PERIOD);
            let mut last = vec![0_u64; known.len()];
            let mut now = 0;
            schedule.due(&known, at(now));
            for gap in gaps {
                now += gap;
                for position in schedule.due(&known, at(now)) {
                    last[position] = now;
                }
                prop_assert!(last.iter().all(|visit| now - visit <= 30_000));
            }
        }
    }
}
