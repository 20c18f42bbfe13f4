//! A request's body in parts.
//!
//! What the HTTP library and the kernel have taken over when an attempt is dropped may still arrive, so they are given a
//! large body bit by bit: see the module above.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use reqwest::Body;

/// Bytes of a request's body that the HTTP library is given at once.
pub(super) const PART: usize = 64 * 1024;

/// The rest of a large body. Not copied: the parts share the stored bytes.
struct Parts(Bytes);

/// The whole of it, shared and not copied.
pub(super) fn body(bytes: Bytes) -> Body {
    if bytes.len() > PART {
        Body::wrap(Parts(bytes))
    } else {
        Body::from(bytes)
    }
}

// === impl Parts ===

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let size = self.0.len().min(PART);
        let part = (size > 0).then(|| Ok(Frame::data(self.0.split_to(size))));
        Poll::Ready(part)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    /// Exact, so that it is sent with a length and not in chunks, which some servers refuse.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}
