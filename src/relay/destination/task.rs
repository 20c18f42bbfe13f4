//! What a worker does with a message. It does HTTP only.
//!
//! A message that was claimed is a ticket; so are all messages of one key, where they keep their order. A worker, which is one of the
//! endpoint's slots, takes a place in the relay's total, makes one request, and hands the result to the loop. Whatever ends
//! it (an answer, the shutdown, the end of the lease, a reload, a panic), its ticket reports each message exactly once: none
//! under a lease is ever forgotten while its relay lives. If one of a key fails, those behind it are given back. Where several
//! messages go in one request, the ticket is a batch: see `batch.rs`.

use std::{collections::VecDeque, ops::ControlFlow, pin::Pin, sync::Arc};

use tokio::{
    sync::{Semaphore, SemaphorePermit, mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    delivery::{Client, Endpoint},
    message::{Class, Delivery, Outcome},
    metrics::Metrics,
    relay::{
        crash::{self, Point},
        renewal::Lifeline,
        tracer::{Started, Tracer},
    },
    retry::{self, Action},
};

/// What a task came to.
#[derive(Debug)]
pub(in crate::relay) struct Finished {
    pub(in crate::relay) endpoint: Arc<str>,
    /// The endpoint as it was then: whether its answer is a success must not change under a key on its way.
    pub(in crate::relay) policy: Arc<Endpoint>,
    /// How its route wanted it to be tried again then; `None` = as the endpoint does.
    pub(in crate::relay) retry: Option<Arc<retry::Policy>>,
    pub(in crate::relay) delivery: Delivery,
    /// It closes its key if it dies: so its route said then, whatever became of that.
    pub(in crate::relay) hold: bool,
    /// When it was loaded.
    pub(in crate::relay) loaded: Instant,
    /// When its request was started; `None` if none was.
    pub(in crate::relay) started: Option<Instant>,
    /// It waits behind another one of its key: that its time is over counts when it is the head.
    pub(in crate::relay) behind: bool,
    /// It was in a batch that was refused as a whole: what follows is its second request, and the rate counts both.
    pub(in crate::relay) again: bool,
    /// Its request, as it is traced; in a batch `heard` has that.
    pub(in crate::relay) span: Option<Box<Started>>,
    /// What came of the request. `None` although one was started: the task was aborted.
    pub(in crate::relay) outcome: Option<Outcome>,
    /// `None`: it had its request for itself, and its outcome is the request's. In a batch: the requests that it tells of,
    /// for all that were in them.
    pub(in crate::relay) heard: Option<Vec<Heard>>,
}

/// What a request with several messages says of its endpoint.
#[derive(Debug)]
pub(in crate::relay) struct Heard {
    pub(in crate::relay) outcome: Outcome,
    pub(in crate::relay) started: Instant,
    pub(in crate::relay) span: Option<Box<Started>>,
}

/// What tasks share.
#[derive(Clone)]
pub(in crate::relay) struct Desk {
    pub(in crate::relay) finished: mpsc::UnboundedSender<Box<Finished>>,
    pub(in crate::relay) lifeline: Lifeline,
    /// Places for requests of all endpoints.
    pub(in crate::relay) total: Arc<Semaphore>,
    /// Turns true when nothing more may be started.
    pub(in crate::relay) stopping: watch::Receiver<bool>,
    pub(in crate::relay) tracer: Tracer,
    pub(in crate::relay) metrics: Metrics,
}

/// Reports what it still holds when it is dropped, however its worker ends.
pub(super) struct Ticket {
    pub(super) finished: mpsc::UnboundedSender<Box<Finished>>,
    /// The first is the one on its way, or the first of a batch.
    pub(super) left: VecDeque<Box<Finished>>,
}

/// How an endpoint is reached, as it was when the messages were claimed.
pub(super) struct Way {
    pub(super) client: Client,
    /// Whether several messages go in one request.
    pub(super) in_batches: bool,
    /// Cancelled by a reload that changes or removes the endpoint.
    pub(super) retired: CancellationToken,
    pub(super) gate: watch::Receiver<Instant>,
}

// === impl Finished ===

impl Finished {
    /// Whether it must not be sent any more.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        let waited = now.duration_since(self.loaded);
        self.delivery.expires_in.is_some_and(|left| waited >= left)
    }
}

// === impl Way ===

impl Way {
    /// The way of a ticket. Breaks when the lease time is over: `cut` has ended then.
    pub(super) async fn deliver(
        &self,
        ticket: Ticket,
        desk: &Desk,
        cut: Pin<&mut impl Future<Output = ()>>,
    ) -> ControlFlow<()> {
        let head = ticket.left.front();
        let is_step = head.is_some_and(|head| head.delivery.step.is_some());
        if self.in_batches && !is_step {
            self.deliver_batch(ticket, desk, cut).await
        } else {
            self.deliver_chain(ticket, desk, cut).await
        }
    }

    /// The way of one message, and of those that follow it under its key: a request, a report.
    async fn deliver_chain(
        &self,
        mut ticket: Ticket,
        desk: &Desk,
        mut cut: Pin<&mut impl Future<Output = ()>>,
    ) -> ControlFlow<()> {
        while let Some(report) = ticket.left.front_mut() {
            report.behind = false;
            let Some(_place) = self.place(desk, cut.as_mut()).await? else {
                break;
            };
            let now = Instant::now();
            if report.has_expired(now) || !self.may_start(now, desk) {
                break;
            }
            report.started = Some(now);
            let (trace, span) = desk.tracer.begin(&report.policy, &[&report.delivery]);
            report.span = span;
            let _on_the_way = desk.metrics.on_the_way(&report.policy.name);
            let outcome = tokio::select! {
                biased;
                // Another relay may deliver it from now on.
                () = cut.as_mut() => return ControlFlow::Break(()),
                outcome = crash::while_sent(self.client.attempt_within(&report.delivery, trace)) => outcome,
            };
            crash::point(Point::Answered);
            let delivered = report.policy.retry.action(&outcome) == Action::Success;
            report.outcome = Some(outcome);
            ticket.report(false);
            if !delivered {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// A place in the relay's total; `None` as soon as nothing may be started any more.
    pub(super) async fn place<'d>(
        &self,
        desk: &'d Desk,
        cut: Pin<&mut impl Future<Output = ()>>,
    ) -> ControlFlow<(), Option<SemaphorePermit<'d>>> {
        if let Ok(place) = desk.total.try_acquire() {
            return ControlFlow::Continue(Some(place));
        }
        let (mut stopping, mut gate) = (desk.stopping.clone(), self.gate.clone());
        tokio::select! {
            biased;
            () = cut => ControlFlow::Break(()),
            _ = stopping.wait_for(|stopping| *stopping) => ControlFlow::Continue(None),
            () = self.retired.cancelled() => ControlFlow::Continue(None),
            _ = gate.wait_for(|until| *until > Instant::now()) => ControlFlow::Continue(None),
            place = desk.total.acquire() => ControlFlow::Continue(place.ok()),
        }
    }

    /// Whether another request may be made: the endpoint is open and as it was, the lease is good, and nobody stops.
    pub(super) fn may_start(&self, now: Instant, desk: &Desk) -> bool {
        *self.gate.borrow() <= now
            && desk.lifeline.may_start()
            && !*desk.stopping.borrow()
            && !self.retired.is_cancelled()
    }
}

// === impl Ticket ===

impl Ticket {
    /// Hands the first message to the loop.
    pub(super) fn report(&mut self, fault: bool) {
        let Some(mut report) = self.left.pop_front() else {
            return;
        };
        if report.outcome.is_none() && (report.started.is_some() || fault) {
            let started = *report.started.get_or_insert_with(Instant::now);
            // After a fault of ours the same may happen again: it counts, and waits, as any other failure.
            let (class, error) = match fault {
                true => (Class::Panicked, "a fault of the relay ended this attempt"),
                false => (Class::Aborted, "stopped before the answer was there"),
            };
            report.outcome = Some(Outcome {
                class,
                status: None,
                error: Some(error.into()),
                response: None,
                retry_after: None,
                duration: started.elapsed(),
                exchange: None,
                output: None,
                poll: None,
            });
        }
        // The loop is gone only when the whole relay is.
        drop(self.finished.send(report));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A panic was about the first, or about all that went with it; what was not started is given back.
        let fault = std::thread::panicking();
        self.report(fault);
        while let Some(next) = self.left.front() {
            let fault = fault && next.started.is_some();
            self.report(fault);
        }
    }
}

/// Gives a semaphore another size. Places that are in use are taken away as they are given back.
pub(in crate::relay) fn resize(
    slots: &Arc<Semaphore>,
    from: usize,
    to: usize,
    tasks: &mut JoinSet<()>,
) {
    if to >= from {
        slots.add_permits(to - from);
        return;
    }
    let surplus = from - to;
    let left = surplus - slots.forget_permits(surplus);
    if let Ok(left @ 1..) = u32::try_from(left) {
        let slots = slots.clone();
        tasks.spawn(async move {
            if let Ok(places) = slots.acquire_many(left).await {
                places.forget();
            }
        });
    }
}
