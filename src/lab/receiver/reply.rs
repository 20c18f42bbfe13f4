//! What a receiver does with a request: an answer, whole or drop by drop, or one of the ways not to give one.
use std::{
    convert::Infallible,
    future::pending,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Response, StatusCode,
    body::{Body as HttpBody, Frame, SizeHint},
    header::{HeaderName, HeaderValue},
};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

use super::{InFlight, Request};

/// The function that decides.
pub(super) type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// What to do with a request.
#[derive(Clone, Debug)]
pub struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    delay: Duration,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Answer,
    HangUp,
    Reset,
    Drip(Duration),
    Never,
}

// === impl Reply ===

impl Reply {
    /// An answer with this status and no body.
    ///
    /// # Panics
    ///
    /// If it isn't a status.
    pub fn status(status: u16) -> Reply {
        Reply {
            status: StatusCode::from_u16(status).expect("a status has three digits"),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            delay: Duration::ZERO,
            kind: Kind::Answer,
        }
    }

    /// Closes the connection without a byte of an answer.
    pub fn hang_up() -> Reply {
        Reply {
            kind: Kind::HangUp,
            ..Reply::status(500)
        }
    }

    /// Leaves the client waiting until it goes away.
    pub fn never() -> Reply {
        Reply {
            kind: Kind::Never,
            ..Reply::status(500)
        }
    }

    /// Adds a header.
    ///
    /// # Panics
    ///
    /// If HTTP doesn't allow such a name or value.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Reply {
        let name = HeaderName::try_from(name).expect("a valid name");
        let value = HeaderValue::try_from(value).expect("a valid value");
        self.headers.append(name, value);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Reply {
        self.body = body.into();
        self
    }

    /// Waits before it does whatever it does.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Reply {
        self.delay = delay;
        self
    }

    /// Sends the headers at once, then one byte of the body per interval.
    #[must_use]
    pub fn drip(mut self, interval: Duration) -> Reply {
        self.kind = Kind::Drip(interval);
        self
    }

    /// Sends the headers and the body, never says that this was the end, and resets the connection (TCP RST).
    #[must_use]
    pub fn reset(mut self) -> Reply {
        self.kind = Kind::Reset;
        self
    }

    pub(super) async fn give(self, in_flight: InFlight) -> Result<Response<Body>, Break> {
        if !self.delay.is_zero() {
            sleep(self.delay).await;
        }
        let pace = match self.kind {
            Kind::Answer => Pace::AtOnce,
            Kind::Drip(interval) => Pace::drip(interval),
            Kind::Reset => Pace::Reset { flushed: false },
            Kind::HangUp => return Err(Break::HangUp),
            Kind::Never => match pending::<Infallible>().await {},
        };
        let mut response = Response::new(Body::new(self.body, pace, in_flight));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        Ok(response)
    }
}

/// Why a connection is to end without a proper answer. hyper hands it back as the source of its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Break {
    #[error("hang up")]
    HangUp,
    #[error("reset")]
    Reset,
}

/// The bytes of an answer, in their time.
pub(super) struct Body {
    left: Bytes,
    pace: Pace,
    /// Given up *before* the last byte goes out: the client may send its next request as soon as it has that byte, and
    /// would look as if it had one too many in flight.
    in_flight: Option<InFlight>,
}

enum Pace {
    AtOnce,
    Drip(Interval),
    /// hyper must have written out the headers before it hears of the end, or it would drop them.
    Reset {
        flushed: bool,
    },
}

// === impl Pace ===

impl Pace {
    fn drip(interval: Duration) -> Pace {
        let mut ticks = interval_at(Instant::now() + interval, interval);
        // A late byte makes the next one late, too, instead of two at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Pace::Drip(ticks)
    }
}

// === impl Body ===

impl Body {
    fn new(left: Bytes, pace: Pace, in_flight: InFlight) -> Body {
        let mut body = Body {
            left,
            pace,
            in_flight: Some(in_flight),
        };
        // hyper doesn't ask for the bytes of an empty body.
        if body.is_end_stream() {
            body.in_flight = None;
        }
        body
    }

    fn take(&mut self, count: usize) -> Bytes {
        let bytes = self.left.split_to(count);
        if self.is_end_stream() {
            self.in_flight = None;
        }
        bytes
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Break;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Break>>> {
        let body = &mut *self;
        let count = match &mut body.pace {
            _ if body.left.is_empty() => 0,
            Pace::AtOnce | Pace::Reset { .. } => body.left.len(),
            Pace::Drip(interval) => {
                ready!(interval.poll_tick(context));
                1
            }
        };
        if count > 0 {
            return Poll::Ready(Some(Ok(Frame::data(body.take(count)))));
        }
        match &mut body.pace {
            Pace::AtOnce | Pace::Drip(_) => Poll::Ready(None),
            Pace::Reset { flushed: true } => {
                body.in_flight = None;
                Poll::Ready(Some(Err(Break::Reset)))
            }
            Pace::Reset { flushed } => {
                *flushed = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.pace {
            Pace::AtOnce | Pace::Drip(_) => self.left.is_empty(),
            Pace::Reset { .. } => false,
        }
    }

    /// One that ends in a reset has no length: it goes out in chunks, and the last one never comes.
    fn size_hint(&self) -> SizeHint {
        match self.pace {
            Pace::AtOnce | Pace::Drip(_) => SizeHint::with_exact(self.left.len() as u64),
            Pace::Reset { .. } => SizeHint::default(),
        }
    }
}
