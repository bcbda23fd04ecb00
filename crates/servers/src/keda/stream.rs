//! The answers to a trigger over time: the first at once, then one at each change. An error ends the stream, and KEDA opens
//! a new one.
//!
//! ```text
//! a change ──► topic shop/web floor: new object ── computes one answer ──► if it differs: all streams of this trigger
//!              topic shop/api floor: same object, so no answer is computed and no stream wakes
//! ```
//!
//! A topic exists only for a trigger that an autoscaler can answer, and is removed when it has no stream left.

use std::{collections::HashMap, net::IpAddr, pin::pin, sync::Arc};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::Status;

use super::{
    Statuses, exhausted,
    reading::{Reading, Refusal},
    refused,
    trigger::Trigger,
};
use foretide_base::http::{Limits, Permit, Quota};

/// Interval at which answers are computed without a change: a status becomes too old as time passes.
const RECHECK_PERIOD: SignedDuration = SignedDuration::from_secs(30);

/// Streams of one trigger. KEDA has one for each `ScaledObject` with it; several share an autoscaler of mode Metric.
const STREAMS_OF_TRIGGER: Limits = Limits {
    what: "streams of this trigger",
    total: 256,
    per_holder: 128,
    holder: "address",
    advice: "use type external, which KEDA polls, instead of external-push in some of its ScaledObjects",
};

/// Computes an answer.
type Read<T> = fn(&Reading<'_>) -> Result<T, Refusal>;

/// The answers to the triggers that have streams.
pub struct Topics<T> {
    statuses: Statuses,
    read: Read<T>,
    /// The streams of all topics.
    quota: Arc<Quota<IpAddr>>,
    open: Mutex<HashMap<Trigger, Topic<T>>>,
}

/// The answer to one trigger, for all of its streams.
struct Topic<T> {
    /// The object that the answer was computed from.
    object: Arc<EffectiveHorizontalPodAutoscaler>,
    answer: watch::Sender<Result<T, Status>>,
    quota: Arc<Quota<IpAddr>>,
}

/// An open stream.
struct Listener<T> {
    answer: watch::Receiver<Result<T, Status>>,
    permit: Permit<IpAddr>,
    permit_of_trigger: Permit<IpAddr>,
}

// === impl Topics ===

impl<T> Topics<T>
where
    T: Clone + PartialEq + Send + Sync + 'static,
{
    /// The topics of one call; their streams count against this quota.
    pub fn new(statuses: Statuses, read: Read<T>, quota: Arc<Quota<IpAddr>>) -> Self {
        let open = Mutex::default();
        Self {
            statuses,
            read,
            quota,
            open,
        }
    }

    /// The answers to a trigger, for this peer.
    ///
    /// # Errors
    /// If there is no answer, or too many streams are open.
    pub fn stream(
        &self,
        trigger: Trigger,
        peer: IpAddr,
    ) -> Result<BoxStream<'static, Result<T, Status>>, Status> {
        let permit = self
            .quota
            .acquire(peer)
            .map_err(|reason| exhausted(&reason))?;
        let mut open = self.open.lock();
        // The object may have changed since the last update, and a stream begins with the current answer.
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
            permit,
            permit_of_trigger: topic
                .quota
                .acquire(peer)
                .map_err(|reason| exhausted(&reason))?,
            answer: topic.answer.subscribe(),
        };
        drop(open);
        Ok(listener.answers())
    }

    /// Updates the answers until the autoscalers are no longer watched, and then ends all streams.
    pub async fn run(&self) {
        let clock = &self.statuses.clock;
        let mut changes = self.statuses.autoscalers.changes();
        let mut recheck = pin!(clock.sleep(RECHECK_PERIOD));
        let mut all = false;
        loop {
            // Runs before the first change, too: a topic may be older than `changes`.
            self.update_all(all);
            all = tokio::select! {
                biased;
                () = &mut recheck => true,
                change = changes.next() => match change {
                    Some(()) => false,
                    None => break,
                },
            };
            if all {
                recheck.set(clock.sleep(RECHECK_PERIOD));
            }
        }
        self.open.lock().clear();
    }

    /// Computes the answers whose objects have changed, or `all`.
    fn update_all(&self, all: bool) {
        self.open.lock().retain(|trigger, topic| {
            topic.answer.receiver_count() > 0 && self.update(trigger, topic, all)
        });
    }

    /// Computes the answer of a topic if its object has changed or if `force` is set; returns whether there is an answer.
    fn update(&self, trigger: &Trigger, topic: &mut Topic<T>, force: bool) -> bool {
        let answer = match self.statuses.autoscaler(trigger) {
            Ok(object) if !force && Arc::ptr_eq(&object, &topic.object) => return true,
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
            quota: Quota::new(STREAMS_OF_TRIGGER, self.statuses.clock.clone()),
        })
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }

    #[cfg(test)]
    pub fn quota(&self) -> &Quota<IpAddr> {
        &self.quota
    }
}

// === impl Listener ===

impl<T: Clone + Send + Sync + 'static> Listener<T> {
    fn answers(mut self) -> BoxStream<'static, Result<T, Status>> {
        // The first answer is the current one.
        self.answer.mark_changed();
        stream::unfold(Some(self), |listener| async {
            let mut listener = listener?;
            let answer = listener.next().await?;
            let listener = answer.is_ok().then_some(listener);
            Some((answer, listener))
        })
        .boxed()
    }

    /// The next answer; none after the last one.
    async fn next(&mut self) -> Option<Result<T, Status>> {
        tokio::select! {
            biased;
            evicted = self.permit.evicted() => Some(Err(exhausted(&evicted))),
            evicted = self.permit_of_trigger.evicted() => Some(Err(exhausted(&evicted))),
            changed = self.answer.changed() => {
                changed.ok()?;
                Some(self.answer.borrow_and_update().clone())
            }
        }
    }
}
