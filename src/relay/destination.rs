//! One endpoint as the loop sees it: its slots, and the tasks that fill them. Tasks do HTTP only.
//!
//! A message that was claimed is a task; so are all messages of one key, where they keep their order. It waits for one of the
//! endpoint's slots, makes one request, and hands the result to the loop. Whatever ends a task (an answer, the shutdown,
//! the end of the lease, a panic), its ticket reports each message exactly once: none under a lease is ever forgotten
//! while its relay lives. If one of a key fails, those behind it are given back.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use super::{bearing::Bearing, renewal::Lifeline};
use crate::{
    delivery::{Client, ClientError, Endpoint},
    message::{Class, Delivery, Lane, Outcome},
    retry::Action,
    route::{Order, Routes},
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
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) name: Arc<str>,
    client: Client,
    slots: Arc<Semaphore>,
    /// Messages that are claimed and not yet finished.
    held: usize,
    /// Bytes of their payloads.
    bytes: usize,
    /// How many bytes may be held; one message more is always let in.
    budget: usize,
    /// Closed until then, as far as this relay knows; tasks that have not started give their message back.
    gate: watch::Sender<Instant>,
    /// It is closed because somebody paused it.
    paused: bool,
    /// It has as many in flight as may be, over all relays: no claim before this.
    saturated: Instant,
    /// What is known of its shared limits.
    pub(super) bearing: Bearing,
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

/// Reports what it still holds when it is dropped, however its task ends.
struct Ticket {
    finished: mpsc::UnboundedSender<Finished>,
    /// The first is the one on its way.
    left: VecDeque<Finished>,
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
            "" => &self.routes.of(&lane.topic)?.to,
            endpoint => endpoint,
        };
        self.by_name.get(name)
    }

    /// In which order a lane's messages go.
    pub(super) fn order(&self, lane: &Lane) -> Order {
        self.routes
            .of(&lane.topic)
            .map_or(Order::None, |route| route.order)
    }

    /// The endpoint of a lane, and how many messages and bytes a claim may take for it; `None` if that is not worth it.
    pub(super) fn room(&self, lane: &Lane, now: Instant) -> Option<(Arc<str>, usize, usize)> {
        let destination = self.of(lane)?;
        let (messages, bytes) = destination.room(now)?;
        Some((destination.name.clone(), messages, bytes))
    }

    /// When the next endpoint that must not be asked now may be asked again.
    pub(super) fn next_opening(&self, now: Instant) -> Option<Instant> {
        let moments = self.by_name.values().flat_map(|destination| {
            let gate = *destination.gate.borrow();
            [
                Some(gate),
                Some(destination.saturated),
                destination.bearing.next_tokens(),
            ]
        });
        moments.flatten().filter(|until| *until > now).min()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Destination> {
        self.by_name.values_mut()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Destination> {
        self.by_name.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Destination> {
        self.by_name.get_mut(name)
    }
}

// === impl Destination ===

impl Destination {
    fn new(endpoint: Endpoint, budget: usize) -> Result<Destination, ClientError> {
        let now = Instant::now();
        Ok(Destination {
            name: endpoint.name.as_str().into(),
            client: Client::new(&endpoint)?,
            slots: Arc::new(Semaphore::new(endpoint.concurrency)),
            held: 0,
            bytes: 0,
            budget,
            gate: watch::channel(now).0,
            paused: false,
            saturated: now,
            bearing: Bearing::new(endpoint.limits.clone(), endpoint.concurrency, now),
            endpoint: Arc::new(endpoint),
        })
    }

    /// How many messages and bytes a claim may take now; `None` while it is not worth a round trip. Small claims
    /// cost the database more per message, so while rows are in flight a claim waits for a quarter of the room.
    fn room(&self, now: Instant) -> Option<(usize, usize)> {
        if now < self.saturated || now < *self.gate.borrow() {
            return None;
        }
        let capacity = self.endpoint.concurrency * (1 + PREFETCH);
        let free = capacity.saturating_sub(self.held);
        let bytes = self.budget.saturating_sub(self.bytes);
        let worth = free * 4 >= capacity && bytes * 4 >= self.budget;
        let messages = self
            .bearing
            .tokens()
            .map_or(free, |tokens| tokens.min(free));
        (messages > 0 && (self.held == 0 || worth)).then_some((messages, bytes))
    }

    /// Starts a task for each delivery, or for all of one key; they come in the order of `seq`.
    pub(super) fn start(
        &mut self,
        deliveries: Vec<Delivery>,
        order: Order,
        desk: &Desk,
        tasks: &mut JoinSet<()>,
    ) {
        let loaded = Instant::now();
        let mut chains: Vec<VecDeque<Finished>> = Vec::with_capacity(deliveries.len());
        let mut by_key = HashMap::new();
        for delivery in deliveries {
            self.held += 1;
            self.bytes += size(&delivery);
            let key = delivery.key.clone().filter(|_| order.is_by_key());
            let endpoint = self.name.clone();
            let finished = Finished {
                endpoint,
                delivery,
                loaded,
                started: None,
                outcome: None,
            };
            let chain = key.map_or(chains.len(), |key| {
                *by_key.entry(key).or_insert(chains.len())
            });
            match chains.get_mut(chain) {
                Some(chain) => chain.push_back(finished),
                None => chains.push(VecDeque::from([finished])),
            }
        }
        for left in chains {
            let ticket = Ticket {
                finished: desk.finished.clone(),
                left,
            };
            let gate = self.gate.subscribe();
            let work = (self.client.clone(), self.endpoint.clone());
            tasks.spawn(deliver(
                ticket,
                work,
                self.slots.clone(),
                gate,
                desk.clone(),
            ));
        }
    }

    /// Nothing more is started until then. It does not shorten a longer wait.
    pub(super) fn close(&mut self, until: Instant, paused: bool) {
        self.paused = paused;
        self.gate.send_if_modified(|gate| {
            let later = until > *gate;
            *gate = until.max(*gate);
            later
        });
    }

    /// The endpoint lets deliveries through.
    pub(super) fn opened(&mut self) {
        self.paused = false;
    }

    /// As many are on their way to it as may be, over all relays: it is asked again then.
    pub(super) fn saturated_until(&mut self, until: Instant) {
        self.saturated = until;
    }

    /// Whether nothing can be delivered to it now: it is paused, or closed for a while.
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        self.paused || *self.gate.borrow() > now
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

/// The way of one message, and of those that follow it under its key: a slot, one request, a report.
async fn deliver(
    mut ticket: Ticket,
    (client, endpoint): (Client, Arc<Endpoint>),
    slots: Arc<Semaphore>,
    gate: watch::Receiver<Instant>,
    mut desk: Desk,
) {
    while let Some(report) = ticket.left.front_mut() {
        let _slot = tokio::select! {
            biased;
            _ = desk.stopping.wait_for(|stopping| *stopping) => return,
            () = desk.lifeline.cut() => return,
            slot = slots.acquire() => slot,
        };
        let now = Instant::now();
        let expired = report
            .delivery
            .expires_in
            .is_some_and(|left| now.duration_since(report.loaded) >= left);
        if expired || *gate.borrow() > now || !desk.lifeline.may_start() {
            return;
        }
        report.started = Some(now);
        let outcome = tokio::select! {
            outcome = client.attempt(&report.delivery) => outcome,
            // Another relay may deliver it from now on.
            () = desk.lifeline.cut() => return,
        };
        let delivered = endpoint.retry.action(&outcome) == Action::Success;
        report.outcome = Some(outcome);
        ticket.report(false);
        if !delivered {
            return;
        }
    }
}

// === impl Ticket ===

impl Ticket {
    /// Hands the first message to the loop.
    fn report(&mut self, fault: bool) {
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
            });
        }
        // The loop is gone only when the whole relay is.
        drop(self.finished.send(report));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A panic was about the first; those behind it were not started.
        self.report(std::thread::panicking());
        while !self.left.is_empty() {
            self.report(false);
        }
    }
}
