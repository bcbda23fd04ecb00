//! A trigger's answers over time: the first at once, then one whenever it differs from the last. An error ends the stream,
//! and KEDA opens another.

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use jiff::SignedDuration;
use tonic::Status;

use super::{Scaler, reading::Reading, reading::Refusal, refused, trigger::Trigger};

/// How often an answer is made without a change: a status becomes too old by itself.
const RECHECK_PERIOD: SignedDuration = SignedDuration::from_secs(30);

/// How an answer is made.
type Read<T> = fn(&Reading<'_>) -> Result<T, Refusal>;

/// A stream that has not ended.
struct Answers<T> {
    scaler: Scaler,
    trigger: Trigger,
    read: Read<T>,
    changes: BoxStream<'static, ()>,
    last: Option<T>,
}

/// The answers to one trigger.
pub(super) fn of<T>(
    scaler: Scaler,
    trigger: Trigger,
    read: Read<T>,
) -> BoxStream<'static, Result<T, Status>>
where
    T: Clone + PartialEq + Send + 'static,
{
    let answers = Answers {
        // Before the first answer, so that no change is missed.
        changes: scaler.autoscalers.changes(),
        scaler,
        trigger,
        read,
        last: None,
    };
    stream::unfold(Some(answers), |answers| async {
        let mut answers = answers?;
        match answers.next().await? {
            Ok(answer) => Some((Ok(answer), Some(answers))),
            Err(refusal) => Some((Err(refused(refusal)), None)),
        }
    })
    .boxed()
}

// === impl Answers ===

impl<T: Clone + PartialEq> Answers<T> {
    /// The next answer that differs from the last; none when there are no changes any more.
    async fn next(&mut self) -> Option<Result<T, Refusal>> {
        loop {
            match self.scaler.read(&self.trigger, self.read) {
                Ok(answer) if self.last.as_ref() == Some(&answer) => {}
                Ok(answer) => {
                    self.last = Some(answer.clone());
                    return Some(Ok(answer));
                }
                Err(refusal) => return Some(Err(refusal)),
            }
            tokio::select! {
                change = self.changes.next() => change?,
                () = self.scaler.clock.sleep(RECHECK_PERIOD) => {}
            }
        }
    }
}
