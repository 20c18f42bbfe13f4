//! One endpoint as the loop sees it: its slots and what of them is in use; and all of them, with the routes to them.
//!
//! A reload changes them in place, so that what is on its way stays counted: an endpoint that is as it was is not touched;
//! one that changed sends what it claims from now on in the new way; one that is gone is parked until it holds nothing.
//! What was claimed for the latter two and is not yet on its way is given back.

mod batch;
mod queue;
mod task;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

pub(super) use self::task::{Desk, Finished, resize};
use self::{
    queue::{Queue, chains},
    task::{Ticket, Way},
};
use super::{Plan, bearing::Bearing, lanes::Lanes};
use crate::{
    delivery::{Client, Endpoint},
    message::{Delivery, Lane},
    retry,
    route::{Order, Route, Routes},
    saga::Step,
};

/// A relay that ends when nothing is due waits for a closed endpoint for so long.
const JOB_WAITS: Duration = Duration::from_secs(60);

/// Claimed rows that wait in memory for a slot, as a multiple of the slots: enough to bridge the round trips of a turn.
const PREFETCH: usize = 3;

/// ... and no more than this, or those of slow receivers would burden every claim.
const MOST_PREFETCHED: usize = 512;

/// All endpoints, and which lane goes to which.
pub(super) struct Destinations {
    routes: Routes,
    /// Retry policies that steps of sagas name.
    policies: BTreeMap<String, Arc<retry::Policy>>,
    by_name: HashMap<Arc<str>, Destination>,
    /// Those that a reload removed, while they hold something.
    parked: HashMap<Arc<str>, Destination>,
}

/// Where the messages of a lane go.
#[derive(Clone, Copy)]
pub(super) enum Bound<'a> {
    /// To this endpoint.
    One(&'a Destination),
    /// To each endpoint of this route, after fan-out.
    Several(&'a Route),
}

/// An endpoint and what of it is in use.
pub(super) struct Destination {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) name: Arc<str>,
    /// How it is reached. Another one when a reload changes it: what was claimed for the old one and not started is given back.
    way: Arc<Way>,
    queue: Arc<Queue>,
    /// Messages that are claimed and not yet finished.
    held: usize,
    /// Bytes of their payloads.
    bytes: usize,
    /// How many bytes may be held; one message more is always let in.
    budget: usize,
    /// Closed until then, as far as this relay knows; what has not started is given back.
    gate: watch::Sender<Instant>,
    /// It is closed because somebody paused it.
    paused: bool,
    /// Since when it was closed again and again, without a good answer between.
    closed_since: Option<Instant>,
    /// It has as many in flight as may be, over all relays: no claim before this.
    saturated: Instant,
    /// What is known of its shared limits.
    pub(super) bearing: Bearing,
}

// === impl Destinations ===

impl Destinations {
    pub(super) fn new(plan: &Plan) -> Destinations {
        let mut destinations = Destinations {
            routes: Routes::default(),
            policies: BTreeMap::new(),
            by_name: HashMap::new(),
            parked: HashMap::new(),
        };
        destinations.adopt(plan);
        destinations
    }

    /// Takes over a plan.
    ///
    /// The memory for payloads is shared evenly, so that one endpoint that hangs can't take what the others need.
    pub(super) fn adopt(&mut self, plan: &Plan) {
        let budget = plan.config.memory / plan.endpoints.len().max(1);
        let mut before = std::mem::take(&mut self.by_name);
        for (endpoint, client) in &plan.endpoints {
            let name = endpoint.name.as_str();
            let kept = before.remove(name).or_else(|| self.parked.remove(name));
            let mut destination = kept.unwrap_or_else(|| Destination::new(endpoint, client));
            destination.change(endpoint, client);
            destination.budget = budget;
            self.by_name.insert(destination.name.clone(), destination);
        }
        for (name, destination) in before {
            destination.retire();
            self.parked.insert(name, destination);
        }
        self.routes = plan.routes.clone();
        self.policies.clone_from(&plan.policies);
        self.drop_empty();
    }

    /// Forgets those that are gone and hold nothing any more.
    pub(super) fn drop_empty(&mut self) {
        self.parked.retain(|_, destination| destination.held > 0);
    }

    /// Where a lane's messages go: to an endpoint, or by fan-out to several. `None` where nobody here delivers them: their
    /// topic has no route, or there is no endpoint of that name.
    pub(super) fn of(&self, lane: &Lane) -> Option<Bound<'_>> {
        if lane.is_of_sagas() {
            return self.by_name.get(&*lane.endpoint).map(Bound::One);
        }
        let route = self.routes.of(&lane.topic)?;
        let name = match (lane.endpoint.as_str(), route.to.as_slice()) {
            ("", [only]) => only.endpoint.as_str(),
            ("", _) => return Some(Bound::Several(route)),
            (endpoint, _) => endpoint,
        };
        self.by_name.get(name).map(Bound::One)
    }

    /// In which order a lane's messages go.
    pub(super) fn order(&self, lane: &Lane) -> Order {
        self.routes
            .of(&lane.topic)
            .filter(|_| !lane.is_of_sagas())
            .map_or(Order::None, |route| route.order)
    }

    /// The names of the endpoints that a lane's messages go to.
    pub(super) fn names(&self, lane: &Lane) -> Vec<String> {
        match self.of(lane) {
            None => Vec::new(),
            Some(Bound::One(to)) => vec![to.name.to_string()],
            Some(Bound::Several(route)) => route.endpoints().map(str::to_owned).collect(),
        }
    }

    /// The endpoints of a route.
    fn all<'a>(&'a self, route: &'a Route) -> impl Iterator<Item = &'a Destination> {
        route.endpoints().filter_map(|name| self.by_name.get(name))
    }

    /// How a step of a saga is tried again, where its plan says so.
    pub(super) fn retry_of_step(&self, step: &Step) -> Option<Arc<retry::Policy>> {
        let name = step.retry.as_ref()?;
        let policy = self.policies.get(name).cloned();
        if policy.is_none() {
            tracing::warn!(
                saga = step.name,
                step = step.step,
                retry = name,
                "the configuration has no [retries] of this name: the step is tried again as its endpoint says"
            );
        }
        policy
    }

    /// How failed deliveries of a lane are tried again, where its route says so and not the endpoint.
    pub(super) fn retry(&self, lane: &Lane) -> Option<Arc<retry::Policy>> {
        if lane.is_of_sagas() {
            return None;
        }
        let Bound::One(to) = self.of(lane)? else {
            return None;
        };
        let mut targets = self.routes.of(&lane.topic)?.to.iter();
        let target = targets.find(|target| *target.endpoint == *to.name)?;
        target.retry.clone().map(Arc::new)
    }

    /// The endpoint of a lane, and how many messages and bytes a claim may take for it; `None` if that is not worth it.
    pub(super) fn room(&self, lane: &Lane, now: Instant) -> Option<(Arc<str>, usize, usize)> {
        let Bound::One(destination) = self.of(lane)? else {
            return None;
        };
        let (messages, bytes) = destination.room(now)?;
        Some((destination.name.clone(), messages, bytes))
    }

    /// How many messages and bytes of a lane are worth fan-out: as much as the endpoint can take that has the most room.
    /// Only those count that have nothing left in their own lane (`dry`), so that the table grows no faster than somebody
    /// can deliver.
    pub(super) fn room_for_several(
        &self,
        lane: &Lane,
        now: Instant,
        dry: impl Fn(&Lane) -> bool,
    ) -> Option<(usize, usize)> {
        let Bound::Several(route) = self.of(lane)? else {
            return None;
        };
        let own = |destination: &Destination| Lane {
            topic: lane.topic.clone(),
            endpoint: destination.name.to_string(),
        };
        self.all(route)
            .filter_map(|destination| Some((destination.room(now)?, own(destination))))
            .filter(|(_, lane)| dry(lane))
            .map(|(room, _)| room)
            .max()
    }

    /// Whether it is worth a round trip to look into a lane now.
    pub(super) fn fits(&self, lanes: &Lanes, lane: &Lane, now: Instant) -> bool {
        match self.of(lane) {
            None => false,
            Some(Bound::One(destination)) => destination.room(now).is_some(),
            Some(Bound::Several(_)) => self
                .room_for_several(lane, now, |lane| lanes.is_dry(lane))
                .is_some(),
        }
    }

    /// Whether a lane has a route, if perhaps to an endpoint that is not there.
    pub(super) fn has_route(&self, lane: &Lane) -> bool {
        lane.is_of_sagas() || self.routes.of(&lane.topic).is_some()
    }

    /// Whether nothing of a lane can be delivered: everything that it leads to is closed.
    pub(super) fn is_closed(&self, lane: &Lane, now: Instant) -> bool {
        match self.of(lane) {
            None => false,
            Some(Bound::One(destination)) => destination.is_closed(now),
            Some(Bound::Several(route)) => self.all(route).all(|one| one.is_closed(now)),
        }
    }

    /// Whether nothing can be claimed from this lane before tokens are taken for its endpoint, and they can be now.
    pub(super) fn needs_tokens(&self, lane: &Lane, now: Instant) -> bool {
        let needs = |to: &Destination| {
            let next = to.bearing.next_tokens(now);
            to.is_open(now) && next.is_some_and(|next| next <= now)
        };
        match self.of(lane) {
            None => false,
            Some(Bound::One(to)) => needs(to),
            Some(Bound::Several(route)) => self.all(route).any(needs),
        }
    }

    /// When the next endpoint that must not be asked now may be asked again.
    pub(super) fn next_opening(&self, now: Instant) -> Option<Instant> {
        let moments = self.by_name.values().flat_map(|destination| {
            let gate = *destination.gate.borrow();
            [
                Some(gate),
                Some(destination.saturated),
                destination.bearing.next_tokens(now),
            ]
        });
        moments.flatten().filter(|until| *until > now).min()
    }

    /// All that hold something or may.
    pub(super) fn all_held(&self) -> impl Iterator<Item = &Destination> {
        self.by_name.values().chain(self.parked.values())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Destination> {
        self.by_name.values_mut()
    }

    /// Also one that is gone, as long as it holds something.
    pub(super) fn get(&self, name: &str) -> Option<&Destination> {
        self.by_name.get(name).or_else(|| self.parked.get(name))
    }

    /// How many messages are held for each endpoint, those that a reload removed among them.
    pub(super) fn held(&self) -> impl Iterator<Item = (&str, usize)> {
        let all = self.by_name.values().chain(self.parked.values());
        all.map(|destination| (&*destination.name, destination.held))
    }

    /// As [`Destinations::get`].
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Destination> {
        let Destinations {
            by_name, parked, ..
        } = self;
        by_name.get_mut(name).or_else(|| parked.get_mut(name))
    }
}

// === impl Destination ===

impl Destination {
    fn new(endpoint: &Arc<Endpoint>, client: &Client) -> Destination {
        let now = Instant::now();
        let gate = watch::channel(now).0;
        Destination {
            name: endpoint.name.as_str().into(),
            way: way(endpoint, client, &gate),
            queue: Arc::new(Queue::new(endpoint.concurrency)),
            held: 0,
            bytes: 0,
            budget: 0,
            gate,
            paused: false,
            closed_since: None,
            saturated: now,
            bearing: Bearing::new(endpoint.limits.clone(), endpoint.messages(), now),
            endpoint: endpoint.clone(),
        }
    }

    /// Becomes what the endpoint is now. Nothing happens to one that is as it was.
    fn change(&mut self, endpoint: &Arc<Endpoint>, client: &Client) {
        if *self.endpoint == **endpoint && !self.way.retired.is_cancelled() {
            return;
        }
        self.retire();
        self.way = way(endpoint, client, &self.gate);
        // The old requests keep their slots, so old and new ones together are never more than the endpoint may get.
        self.queue.resize(endpoint.concurrency);
        let before = std::mem::replace(&mut self.endpoint, endpoint.clone());
        if before.limits != endpoint.limits || before.messages() != endpoint.messages() {
            let now = Instant::now();
            self.bearing = Bearing::new(endpoint.limits.clone(), endpoint.messages(), now);
        }
    }

    /// Nothing is started any more in the way that was.
    fn retire(&self) {
        self.way.retired.cancel();
        self.queue.clear();
    }

    /// Whether it may be asked for messages now, as far as this relay knows.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        now >= self.saturated && now >= *self.gate.borrow()
    }

    /// How many messages and bytes a claim may take now; `None` while it is not worth a round trip. Small claims
    /// cost the database more per message, so while rows are in flight a claim waits for a quarter of the room.
    fn room(&self, now: Instant) -> Option<(usize, usize)> {
        if !self.is_open(now) {
            return None;
        }
        // What waits in memory here would take the place of what another relay could send.
        let prefetch = if self.endpoint.limits.max_in_flight.is_some() {
            0
        } else {
            PREFETCH
        };
        let slots = self.endpoint.messages();
        let capacity = slots + (slots * prefetch).min(MOST_PREFETCHED);
        let free = capacity.saturating_sub(self.held);
        let bytes = self.budget.saturating_sub(self.bytes);
        let worth = free * 4 >= capacity && bytes * 4 >= self.budget;
        let messages = self
            .bearing
            .tokens(now)
            .map_or(free, |tokens| tokens.min(free));
        (messages > 0 && (self.held == 0 || worth)).then_some((messages, bytes))
    }

    /// Puts each delivery, or all of one key, or each batch, before the workers; they come in the order of `seq`. `retry` is
    /// how each is tried again, where not as the endpoint says.
    pub(super) fn start(
        &mut self,
        deliveries: Vec<Delivery>,
        order: Order,
        retry: impl Fn(&Delivery) -> Option<Arc<retry::Policy>>,
        desk: &Desk,
        tasks: &mut JoinSet<()>,
    ) {
        let loaded = Instant::now();
        // A step of a saga has a path of its own, and so a request for itself.
        let steps = deliveries.iter().any(|delivery| delivery.step.is_some());
        let batch = self.endpoint.batch.clone().filter(|_| !steps);
        let take = |delivery: Delivery| {
            self.held += 1;
            self.bytes += size(&delivery);
            Box::new(Finished {
                endpoint: self.name.clone(),
                policy: self.endpoint.clone(),
                retry: retry(&delivery),
                delivery,
                hold: order.holds(),
                loaded,
                started: None,
                behind: false,
                again: false,
                span: None,
                outcome: None,
                heard: batch.as_ref().map(|_| Vec::new()),
            })
        };
        let messages = deliveries.into_iter().map(take);
        let lists = match &batch {
            // A claim for an endpoint with batches has no key twice.
            Some(batch) => batch::cut(messages, batch),
            None => chains(messages, order),
        };
        let ticket = |left| Ticket {
            finished: desk.finished.clone(),
            left,
        };
        self.queue.push(&self.way, lists.into_iter().map(ticket));
        self.queue.hire(desk, tasks);
    }

    /// Gives back what has not started.
    pub(super) fn give_back(&self) {
        self.queue.clear();
    }

    /// Another worker for one that panicked.
    pub(super) fn hire(&self, desk: &Desk, tasks: &mut JoinSet<()>) {
        self.queue.hire(desk, tasks);
    }

    /// Nothing more is started until then. It does not shorten a longer wait.
    pub(super) fn close(&mut self, until: Instant, paused: bool) {
        self.paused = paused;
        self.closed_since.get_or_insert_with(Instant::now);
        self.gate.send_if_modified(|gate| {
            let later = until > *gate;
            *gate = until.max(*gate);
            later
        });
        if until > Instant::now() {
            self.queue.clear();
        }
    }

    /// The endpoint lets deliveries through.
    pub(super) fn opened(&mut self) {
        self.paused = false;
    }

    /// As many are on their way to it as may be, over all relays: it is asked again then.
    pub(super) fn saturated_until(&mut self, until: Instant) {
        self.saturated = until;
    }

    /// It gave a good answer.
    pub(super) fn healthy(&mut self) {
        self.closed_since = None;
    }

    /// Whether nothing can be delivered to it: it is paused, or has been closed for longer than a job would wait.
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        let long = self
            .closed_since
            .is_some_and(|since| now.duration_since(since) > JOB_WAITS);
        self.paused || (long && *self.gate.borrow() > now)
    }

    /// A message is finished: its place and its bytes are free.
    pub(super) fn release(&mut self, delivery: &Delivery) {
        self.held = self.held.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size(delivery));
    }
}

fn way(endpoint: &Endpoint, client: &Client, gate: &watch::Sender<Instant>) -> Arc<Way> {
    Arc::new(Way {
        client: client.clone(),
        in_batches: endpoint.batch.is_some(),
        retired: CancellationToken::new(),
        gate: gate.subscribe(),
    })
}

fn size(delivery: &Delivery) -> usize {
    delivery.body.as_ref().map_or(0, bytes::Bytes::len)
}

#[cfg(test)]
mod tests;
