//! What was claimed for an endpoint and waits for a slot, and the workers that are its slots.
//!
//! A worker is a task that takes the next message, or chain of messages, as long as there is one, and ends when there is none:
//! so under load nothing is spawned for a message. There are never more workers than the endpoint has slots; after a reload
//! that took slots away the surplus ones end with the request that they have.
//! Whatever waits here can be given back at any time: dropping a ticket reports it.

use std::{
    collections::{HashMap, VecDeque},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::JoinSet;

use super::task::{Desk, Finished, Ticket, Way};
use crate::route::Order;

/// Shared by an endpoint and its workers.
#[derive(Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<(Arc<Way>, Ticket)>,
    workers: usize,
    slots: usize,
}

/// One of the workers, counted until it ends, by a panic too.
struct Worker {
    queue: Arc<Queue>,
    counted: bool,
}

// === impl Queue ===

impl Queue {
    pub(super) fn new(slots: usize) -> Queue {
        let queue = Queue::default();
        queue.lock().slots = slots;
        queue
    }

    /// From now on so many requests at once.
    pub(super) fn resize(&self, slots: usize) {
        self.lock().slots = slots;
    }

    /// Puts these behind what waits already.
    pub(super) fn push(&self, way: &Arc<Way>, tickets: impl IntoIterator<Item = Ticket>) {
        let tickets = tickets.into_iter().map(|ticket| (way.clone(), ticket));
        self.lock().waiting.extend(tickets);
    }

    /// As many workers as there are slots, and something to do for them.
    pub(super) fn hire(self: &Arc<Queue>, desk: &Desk, tasks: &mut JoinSet<()>) {
        let new = {
            let mut state = self.lock();
            let free = state.slots.saturating_sub(state.workers);
            let new = free.min(state.waiting.len());
            state.workers += new;
            new
        };
        for _ in 0..new {
            let worker = Worker {
                queue: self.clone(),
                counted: true,
            };
            tasks.spawn(worker.run(desk.clone()));
        }
    }

    /// Gives back what waits.
    pub(super) fn clear(&self) {
        // They report when they are dropped; nobody must be kept waiting meanwhile.
        let waiting = std::mem::take(&mut self.lock().waiting);
        drop(waiting);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What a panic leaves behind is whole: nothing here can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Worker ===

impl Worker {
    async fn run(mut self, desk: Desk) {
        let mut cut = pin!(desk.lifeline.cut());
        while let Some((way, ticket)) = self.next() {
            if way.deliver(ticket, &desk, cut.as_mut()).await.is_break() {
                cut.set(desk.lifeline.cut());
            }
        }
    }

    /// What comes next; `None`: this worker is not needed any more.
    fn next(&mut self) -> Option<(Arc<Way>, Ticket)> {
        let mut state = self.queue.lock();
        let next = match state.workers > state.slots {
            true => None,
            false => state.waiting.pop_front(),
        };
        if next.is_none() {
            // Under the same lock: what is put here from now on finds a place free for another worker.
            state.workers -= 1;
            self.counted = false;
        }
        next
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.counted {
            self.queue.lock().workers -= 1;
        }
    }
}

/// Each message by itself, or behind those before it under its key.
pub(super) fn chains(
    messages: impl Iterator<Item = Box<Finished>>,
    order: Order,
) -> Vec<VecDeque<Box<Finished>>> {
    let mut chains: Vec<VecDeque<Box<Finished>>> = Vec::with_capacity(messages.size_hint().0);
    let mut by_key = HashMap::new();
    for mut message in messages {
        let key = message.delivery.key.as_ref().filter(|_| order.is_by_key());
        let chain = key.map_or(chains.len(), |key| {
            *by_key.entry(key.clone()).or_insert(chains.len())
        });
        match chains.get_mut(chain) {
            Some(chain) => {
                message.behind = true;
                chain.push_back(message);
            }
            None => chains.push(VecDeque::from([message])),
        }
    }
    chains
}
