//! A trigger's answers over time: the first at once, then one at each change. An error ends the stream, and KEDA opens
//! another.
//!
//! ```text
//! a change ──► topic shop/web floor: another object ─ one answer is made ─► all streams of this trigger, if it is another
//!              topic shop/api floor: the same object, so no answer is made and no stream wakes
//! ```
//!
//! There are no more topics than triggers that an autoscaler can answer, and one without a stream is forgotten.

use std::{
    collections::HashMap,
    net::IpAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use jiff::SignedDuration;
use tokio::sync::watch;
use tonic::Status;

use super::{
    Statuses,
    places::{Limits, Place, Places},
    reading::{Reading, Refusal},
    refused,
    trigger::Trigger,
};

/// How often answers are made without a change: a status becomes too old by itself.
const RECHECK_PERIOD: SignedDuration = SignedDuration::from_secs(30);

/// Streams of one trigger. KEDA has one for each `ScaledObject` with it; several share an autoscaler of mode Metric.
const OF_TRIGGER: Limits = Limits {
    what: "streams of this trigger",
    total: 256,
    of_peer: 128,
    advice: "use type external, which KEDA polls, instead of external-push in some of its ScaledObjects",
};

/// How an answer is made.
type Read<T> = fn(&Reading<'_>) -> Result<T, Refusal>;

/// What triggers are answered, for those that have streams.
pub(super) struct Topics<T> {
    statuses: Statuses,
    read: Read<T>,
    /// Of all topics.
    places: Arc<Places>,
    open: Mutex<HashMap<Trigger, Topic<T>>>,
}

/// The answer to one trigger, for all of its streams.
struct Topic<T> {
    /// What the answer was made from.
    object: Arc<EffectiveHorizontalPodAutoscaler>,
    answer: watch::Sender<Result<T, Status>>,
    places: Arc<Places>,
}

/// A stream that has not ended.
struct Listener<T> {
    answer: watch::Receiver<Result<T, Status>>,
    of_all: Place,
    of_trigger: Place,
}

// === impl Topics ===

impl<T> Topics<T>
where
    T: Clone + PartialEq + Send + Sync + 'static,
{
    /// The topics of one call; their streams take these places.
    pub(super) fn new(statuses: Statuses, read: Read<T>, places: Arc<Places>) -> Self {
        let open = Mutex::default();
        Self {
            statuses,
            read,
            places,
            open,
        }
    }

    /// The answers to a trigger, for this peer.
    ///
    /// # Errors
    /// If there is no answer, or no place for another stream.
    pub(super) fn stream(
        &self,
        trigger: Trigger,
        peer: IpAddr,
    ) -> Result<BoxStream<'static, Result<T, Status>>, Status> {
        let of_all = self.places.take(peer)?;
        let mut open = self.open();
        if let Some(topic) = open.get_mut(&trigger)
            && !self.update(&trigger, topic, false)
        {
            open.remove(&trigger);
        }
        let topic = match open.entry(trigger) {
            std::collections::hash_map::Entry::Occupied(topic) => topic.into_mut(),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                let topic = self.topic(vacant.key()).map_err(refused)?;
                vacant.insert(topic)
            }
        };
        let listener = Listener {
            of_all,
            of_trigger: topic.places.take(peer)?,
            answer: topic.answer.subscribe(),
        };
        drop(open);
        Ok(listener.answers())
    }

    /// Keeps the answers up to date until nothing changes any more, and then ends all streams.
    pub(super) async fn run(&self) {
        let clock = &self.statuses.clock;
        let mut changes = self.statuses.autoscalers.changes();
        let mut recheck = pin!(clock.sleep(RECHECK_PERIOD));
        let mut all = false;
        loop {
            // At first too: a topic may be older than `changes`.
            self.update_all(all);
            all = tokio::select! {
                change = changes.next() => match change {
                    Some(()) => false,
                    None => break,
                },
                () = &mut recheck => true,
            };
            if all {
                recheck.set(clock.sleep(RECHECK_PERIOD));
            }
        }
        self.open().clear();
    }

    /// Makes the answers whose objects have changed, or `all`.
    fn update_all(&self, all: bool) {
        self.open().retain(|trigger, topic| {
            topic.answer.receiver_count() > 0 && self.update(trigger, topic, all)
        });
    }

    /// Makes the answer of a topic if its object has changed, or if it `must`; whether there is one.
    fn update(&self, trigger: &Trigger, topic: &mut Topic<T>, must: bool) -> bool {
        let answer = match self.statuses.autoscaler(trigger) {
            Ok(object) if !must && Arc::ptr_eq(&object, &topic.object) => return true,
            Ok(object) => {
                let answer = self.statuses.read_of(&object, trigger, self.read);
                topic.object = object;
                answer
            }
            Err(refusal) => Err(refusal),
        };
        let is_there = answer.is_ok();
        let answer = answer.map_err(refused);
        topic.answer.send_if_modified(|last| {
            let is_same = matches!((&*last, &answer), (Ok(last), Ok(answer)) if last == answer);
            if !is_same {
                *last = answer;
            }
            !is_same
        });
        is_there
    }

    fn topic(&self, trigger: &Trigger) -> Result<Topic<T>, Refusal> {
        let object = self.statuses.autoscaler(trigger)?;
        let answer = self.statuses.read_of(&object, trigger, self.read)?;
        Ok(Topic {
            object,
            answer: watch::Sender::new(Ok(answer)),
            places: Places::new(OF_TRIGGER),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Trigger, Topic<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.open().len()
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> &Places {
        &self.places
    }
}

// === impl Listener ===

impl<T: Clone + Send + Sync + 'static> Listener<T> {
    fn answers(mut self) -> BoxStream<'static, Result<T, Status>> {
        // The first is the one that there is.
        self.answer.mark_changed();
        stream::unfold(Some(self), |listener| async {
            let mut listener = listener?;
            let answer = listener.next().await?;
            let listener = answer.is_ok().then_some(listener);
            Some((answer, listener))
        })
        .boxed()
    }

    /// The next answer; none when there are no changes any more.
    async fn next(&mut self) -> Option<Result<T, Status>> {
        tokio::select! {
            changed = self.answer.changed() => {
                changed.ok()?;
                Some(self.answer.borrow_and_update().clone())
            }
            displaced = self.of_all.displaced() => Some(Err(displaced)),
            displaced = self.of_trigger.displaced() => Some(Err(displaced)),
        }
    }
}
