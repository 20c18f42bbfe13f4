//! One endpoint as the loop sees it: its slots, and the tasks that fill them. Tasks do HTTP only.
//!
//! A message that was claimed is a task. It waits for one of the endpoint's slots, makes one request, and hands the result
//! to the loop. Whatever ends a task (an answer, the shutdown, the end of the lease, a panic), its ticket reports exactly
//! once: a message under a lease is never forgotten while its relay lives.

use std::{collections::HashMap, sync::Arc};

use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use super::renewal::Lifeline;
use crate::{
    delivery::{Client, ClientError, Endpoint},
    message::{Class, Delivery, Lane, Outcome},
    route::Routes,
};

/// Claimed rows that wait in memory for a slot, as a share of the slots: enough to bridge one round trip.
const PREFETCH: usize = 1;

/// All endpoints, and which lane goes to which.
pub(super) struct Destinations<'a> {
    routes: &'a Routes,
    by_name: HashMap<Arc<str>, Destination>,
}

/// An endpoint and what of it is in use.
pub(super) struct Destination {
    pub(super) endpoint: Endpoint,
    name: Arc<str>,
    client: Client,
    slots: Arc<Semaphore>,
    /// Messages that are claimed and not yet finished.
    held: usize,
    /// Bytes of their payloads.
    bytes: usize,
    /// How many bytes may be held; one message more is always let in.
    budget: usize,
}

/// What a task came to.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) endpoint: Arc<str>,
    pub(super) delivery: Delivery,
    /// When it was loaded.
    pub(super) loaded: Instant,
    /// When its request was started; `None` if none was.
    pub(super) started: Option<Instant>,
    /// What came of the request. `None` although one was started: the task was aborted.
    pub(super) outcome: Option<Outcome>,
}

/// What tasks share.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) finished: mpsc::UnboundedSender<Finished>,
    pub(super) lifeline: Lifeline,
    /// Turns true when nothing more may be started.
    pub(super) stopping: watch::Receiver<bool>,
}

/// Reports its delivery when it is dropped, however its task ends.
struct Ticket {
    finished: mpsc::UnboundedSender<Finished>,
    report: Option<Finished>,
}

// === impl Destinations ===

impl<'a> Destinations<'a> {
    /// The `memory` for payloads is shared evenly, so that one endpoint that hangs can't take what the others need.
    pub(super) fn new(
        endpoints: &[Endpoint],
        routes: &'a Routes,
        memory: usize,
    ) -> Result<Destinations<'a>, ClientError> {
        let budget = memory / endpoints.len().max(1);
        let mut by_name = HashMap::new();
        for endpoint in endpoints {
            let destination = Destination::new(endpoint.clone(), budget)?;
            by_name.insert(destination.name.clone(), destination);
        }
        Ok(Destinations { routes, by_name })
    }

    /// Where a lane's messages go; `None` without a route.
    pub(super) fn of(&self, lane: &Lane) -> Option<&Destination> {
        let name = match lane.endpoint.as_str() {
            "" => self.routes.endpoint(&lane.topic)?,
            endpoint => endpoint,
        };
        self.by_name.get(name)
    }

    /// The name of the endpoint that a lane's messages go to.
    pub(super) fn name(&self, lane: &Lane) -> Option<&str> {
        self.of(lane).map(|destination| &*destination.name)
    }

    /// The endpoint of a lane, and how many messages and bytes a claim may take for it; `None` if that is not worth it.
    pub(super) fn room(&self, lane: &Lane) -> Option<(Arc<str>, usize, usize)> {
        let destination = self.of(lane)?;
        let (messages, bytes) = destination.room()?;
        Some((destination.name.clone(), messages, bytes))
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Destination> {
        self.by_name.get_mut(name)
    }
}

// === impl Destination ===

impl Destination {
    fn new(endpoint: Endpoint, budget: usize) -> Result<Destination, ClientError> {
        Ok(Destination {
            name: endpoint.name.as_str().into(),
            client: Client::new(&endpoint)?,
            slots: Arc::new(Semaphore::new(endpoint.concurrency)),
            held: 0,
            bytes: 0,
            budget,
            endpoint,
        })
    }

    /// How many messages and bytes a claim may take now; `None` while it is not worth a round trip. Small claims
    /// cost the database more per message, so while rows are in flight a claim waits for a quarter of the room.
    fn room(&self) -> Option<(usize, usize)> {
        let capacity = self.endpoint.concurrency * (1 + PREFETCH);
        let free = capacity.saturating_sub(self.held);
        let bytes = self.budget.saturating_sub(self.bytes);
        let worth = free * 4 >= capacity && bytes * 4 >= self.budget;
        (self.held == 0 || worth).then_some((free, bytes))
    }

    /// Starts a task for each delivery.
    pub(super) fn start(
        &mut self,
        deliveries: Vec<Delivery>,
        desk: &Desk,
        tasks: &mut JoinSet<()>,
    ) {
        let loaded = Instant::now();
        for delivery in deliveries {
            self.held += 1;
            self.bytes += size(&delivery);
            let ticket = Ticket {
                finished: desk.finished.clone(),
                report: Some(Finished {
                    endpoint: self.name.clone(),
                    delivery,
                    loaded,
                    started: None,
                    outcome: None,
                }),
            };
            tasks.spawn(deliver(
                ticket,
                self.client.clone(),
                self.slots.clone(),
                desk.clone(),
            ));
        }
    }

    /// A message is finished: its place and its bytes are free.
    pub(super) fn release(&mut self, delivery: &Delivery) {
        self.held = self.held.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size(delivery));
    }
}

fn size(delivery: &Delivery) -> usize {
    delivery.body.as_ref().map_or(0, bytes::Bytes::len)
}

/// The way of one message: a slot, one request, a report.
async fn deliver(mut ticket: Ticket, client: Client, slots: Arc<Semaphore>, mut desk: Desk) {
    let stopping = desk.stopping.wait_for(|stopping| *stopping);
    let _slot = tokio::select! {
        biased;
        _ = stopping => return,
        () = desk.lifeline.cut() => return,
        slot = slots.acquire() => slot,
    };
    let Some(report) = ticket.report.as_mut() else {
        return;
    };
    let now = Instant::now();
    let expired = report
        .delivery
        .expires_in
        .is_some_and(|left| now >= report.loaded + left);
    if expired || !desk.lifeline.may_start() {
        return;
    }
    report.started = Some(now);
    tokio::select! {
        outcome = client.attempt(&report.delivery) => report.outcome = Some(outcome),
        // Another relay may deliver it from now on.
        () = desk.lifeline.cut() => {}
    }
}

// === impl Ticket ===

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(mut report) = self.report.take() {
            if let (Some(started), None) = (report.started, &report.outcome) {
                report.outcome = Some(Outcome {
                    class: Class::Aborted,
                    status: None,
                    error: Some("stopped before the answer was there".into()),
                    response: None,
                    retry_after: None,
                    duration: started.elapsed(),
                });
            }
            // The loop is gone only when the whole relay is.
            drop(self.finished.send(report));
        }
    }
}
