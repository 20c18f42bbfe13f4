//! Where a test lets a relay end in the middle of its loop, as `kill -9` would.
//!
//! Builds with debug assertions only: in a release build there is nothing of it.

#[cfg(debug_assertions)]
use std::time::Duration;

/// A receiver that takes longer than this has read the request.
#[cfg(debug_assertions)]
const LONG: Duration = Duration::from_secs(1);

/// A place in the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// The relay is registered, and nothing else has happened.
    Registered,
    /// Before a claim is sent.
    Claim,
    /// Its answer is there, and its messages are not yet with the workers.
    Claimed,
    /// The workers have them.
    Started,
    /// A request has been on its way for [`LONG`], and is not answered.
    Sent,
    /// An answer of a receiver is there, and the loop does not know of it.
    Answered,
    /// Before a settle is sent.
    Settle,
    /// Its answer is there.
    Settled,
    /// The rows of a topic with several endpoints are theirs.
    Expanded,
    /// Messages that nobody claims are given up, for their time is over.
    Expired,
    /// The lease is renewed, and the loop does not know of it.
    Beat,
    /// The messages of a dead relay are due again.
    Reaped,
    /// What a claim of unknown end took is given back.
    Recovered,
    /// A registration is void, and there is no other one yet.
    Anew,
    /// All is settled, and the relay is still registered.
    Deregister,
}

/// Ends the process if `OUTBOX_RELAY_CRASH` names this place; `claimed:3` is its third passing.
#[cfg(debug_assertions)]
#[expect(
    clippy::disallowed_methods,
    reason = "no part of the configuration: for tests only"
)]
pub(super) fn point(here: Point) {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    };

    static PLAN: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let plan = std::env::var("OUTBOX_RELAY_CRASH").ok()?;
        let (name, times) = plan.split_once(':')?;
        Some((name.to_owned(), AtomicU64::new(times.parse().ok()?)))
    });
    if let Some((name, left)) = plan
        && format!("{here:?}").eq_ignore_ascii_case(name)
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}

/// Passes [`Point::Sent`] if a request is not answered by then.
#[cfg(debug_assertions)]
pub(super) async fn while_sent<T>(request: impl Future<Output = T>) -> T {
    let mut request = std::pin::pin!(request);
    tokio::select! {
        biased;
        outcome = &mut request => return outcome,
        () = tokio::time::sleep(LONG) => point(Point::Sent),
    }
    request.await
}

#[cfg(not(debug_assertions))]
pub(super) async fn while_sent<T>(request: impl Future<Output = T>) -> T {
    request.await
}

#[cfg(not(debug_assertions))]
pub(super) const fn point(_: Point) {}
