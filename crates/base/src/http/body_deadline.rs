//! The body of a request, which must arrive in time: the received part of it is in memory.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::BoxError;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// The time for a whole body: the largest, an experiment of the Lab, comes from this machine.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body that ends with an error when it takes longer than [`BODY_TIMEOUT`].
#[derive(Debug)]
pub struct BodyDeadline<B> {
    body: B,
    late: Pin<Box<Sleep>>,
}

// === impl BodyDeadline ===

impl<B> BodyDeadline<B> {
    pub fn new(body: B) -> Self {
        Self {
            body,
            late: Box::pin(sleep(BODY_TIMEOUT)),
        }
    }
}

impl<B: Body<Error: Into<BoxError>> + Unpin> Body for BodyDeadline<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.late.as_mut().poll(context));
        let seconds = BODY_TIMEOUT.as_secs();
        let error = format!("expected the whole body within {seconds} s");
        Poll::Ready(Some(Err(error.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
