//! Tasks whose requests have several messages: how a claim is cut into them, and what follows from their answers.
//!
//! A batch is one request in one slot. Its messages share its fate unless the answer says what became of each. One that the
//! receiver will never accept must not take its neighbours to death with it: a batch that is refused as a whole is sent
//! again message by message, in the same slot; and a message that has failed some times goes alone from the start, since
//! what hangs or crashes the receiver gets no answer that could name it.

use std::{collections::VecDeque, ops::ControlFlow, pin::Pin};

use tokio::time::Instant;

use super::task::{Desk, Finished, Heard, Ticket, Way};
use crate::{
    delivery::batch::{Answered, Config},
    message::{Delivery, Outcome},
    retry::Action,
    trace::Propagation,
};

/// After so many attempts that failed a message goes alone.
const FAILED: u32 = 3;

/// Cuts what a claim brought into batches; they keep the order. Nothing waits for a batch to be full.
pub(super) fn cut(
    messages: impl Iterator<Item = Box<Finished>>,
    config: &Config,
) -> Vec<VecDeque<Box<Finished>>> {
    let mut batches = Vec::new();
    let mut batch = VecDeque::new();
    let mut bytes = 0;
    for message in messages {
        let size = super::size(&message.delivery);
        if message.delivery.attempts >= FAILED {
            batches.push(VecDeque::from([message]));
            continue;
        }
        let full = batch.len() >= config.messages || bytes + size > config.bytes;
        if full && !batch.is_empty() {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += size;
        batch.push_back(message);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

// === impl Way ===

impl Way {
    /// The way of a batch: one request, a report of each message; and if it was refused as a whole, one request for each.
    pub(super) async fn deliver_batch(
        &self,
        mut ticket: Ticket,
        desk: &Desk,
        mut cut: Pin<&mut impl Future<Output = ()>>,
    ) -> ControlFlow<()> {
        const DONE: ControlFlow<()> = ControlFlow::Continue(());
        let Some(_place) = self.place(desk, cut.as_mut()).await? else {
            return DONE;
        };
        let now = Instant::now();
        ticket.give_up_expired(now);
        let Some(first) = ticket.left.front() else {
            return DONE;
        };
        if !self.may_start(now, desk) {
            return DONE;
        }
        let policy = first.policy.clone();
        let count = ticket.left.len();
        let answered = self.request(&mut ticket, count, desk, cut.as_mut()).await?;
        let dead = policy.retry.action(&answered.whole) == Action::Dead;
        if answered.each.is_some() || !dead || count == 1 {
            ticket.report_batch(answered);
            return DONE;
        }
        tracing::warn!(
            endpoint = policy.name,
            messages = count,
            error = answered.whole.error,
            "a batch was refused: its messages are sent one by one"
        );
        ticket.put_back(answered);
        while !ticket.left.is_empty() {
            let now = Instant::now();
            ticket.give_up_expired(now);
            if ticket.left.is_empty() || !self.may_start(now, desk) {
                return DONE;
            }
            let answered = self.request(&mut ticket, 1, desk, cut.as_mut()).await?;
            ticket.report_batch(answered);
        }
        DONE
    }

    /// One request with the first messages. Breaks when another relay may deliver them.
    async fn request(
        &self,
        ticket: &mut Ticket,
        count: usize,
        desk: &Desk,
        cut: Pin<&mut impl Future<Output = ()>>,
    ) -> ControlFlow<(), Answered> {
        let started = Some(Instant::now());
        for message in ticket.left.iter_mut().take(count) {
            message.started = started;
        }
        let mut trace = Propagation::Untouched;
        if let Some(first) = ticket.left.front() {
            let deliveries = first_of(&ticket.left, count);
            let (told, span) = desk.tracer.begin(&first.policy, &deliveries);
            trace = told;
            if let Some(first) = ticket.left.front_mut() {
                first.span = span;
            }
        }
        let deliveries = first_of(&ticket.left, count);
        let _on_the_way = ticket
            .left
            .front()
            .map(|first| desk.metrics.on_the_way(&first.policy.name));
        tokio::select! {
            biased;
            () = cut => ControlFlow::Break(()),
            answered = self.client.attempt_batch(&deliveries, trace) => ControlFlow::Continue(answered),
        }
    }
}

fn first_of(messages: &VecDeque<Box<Finished>>, count: usize) -> Vec<&Delivery> {
    let first = messages.iter().take(count);
    first.map(|message| &message.delivery).collect()
}

// === impl Ticket ===

impl Ticket {
    /// Hands those that must not be sent any more to the loop, which sees that they have expired.
    fn give_up_expired(&mut self, now: Instant) {
        if !self.left.iter().any(|message| message.has_expired(now)) {
            return;
        }
        let all = std::mem::take(&mut self.left).into_iter();
        let (expired, left) = all.partition(|message| message.has_expired(now));
        self.left = expired;
        while !self.left.is_empty() {
            self.report(false);
        }
        self.left = left;
    }

    /// Hands the messages that were started to the loop. The first tells of the request.
    fn report_batch(&mut self, Answered { whole, each }: Answered) {
        let sent = self
            .left
            .iter()
            .take_while(|message| message.started.is_some());
        let each = each.unwrap_or_else(|| vec![whole.clone(); sent.count()]);
        self.hear(whole);
        for outcome in each {
            if let Some(message) = self.left.front_mut() {
                message.outcome = Some(outcome);
            }
            self.report(false);
        }
    }

    /// The request said nothing of single messages: none of them counts as sent.
    fn put_back(&mut self, Answered { whole, .. }: Answered) {
        self.hear(whole);
        for message in &mut self.left {
            message.started = None;
            message.again = true;
        }
    }

    fn hear(&mut self, outcome: Outcome) {
        if let Some(first) = self.left.front_mut()
            && let Some(started) = first.started
        {
            let heard = first.heard.get_or_insert_default();
            heard.push(Heard {
                outcome,
                started,
                span: first.span.take(),
            });
        }
    }
}
