//! Batches: how they are cut, and that each message is reported exactly once, however its task ends.

use std::sync::OnceLock;

use bytes::Bytes;
use rand::{SeedableRng, rngs::StdRng};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::*;
use crate::{
    delivery::batch::Config as Batch,
    lab::receiver::{Receiver, Reply, Request},
    message::Class,
    metrics::Metrics,
    relay::{Tracer, renewal::Lifeline},
};

const SOON: Duration = Duration::from_secs(10);

fn delivery(n: u8, attempts: u32, size: usize) -> Delivery {
    Delivery {
        lease: 1,
        lane_endpoint: String::new(),
        id: Uuid::from_u128(n.into()),
        topic: "t".into(),
        key: None,
        kind: None,
        body: Some(Bytes::from(vec![b'1'; size])),
        content_type: Some("application/json".into()),
        headers: Vec::new(),
        seq: n.into(),
        attempts,
        lost: 0,
        throttled: 0,
        generation: 0,
        sent_to: None,
        step: None,
        created_at: String::new(),
        age: Duration::ZERO,
        expires_in: None,
    }
}

fn three() -> Vec<Delivery> {
    (1..=3).map(|n| delivery(n, 0, 1)).collect()
}

/// A destination with one slot, and the loop's side of its tasks.
struct Stage {
    receiver: Receiver,
    destination: Destination,
    tasks: JoinSet<()>,
    desk: Desk,
    inbox: mpsc::UnboundedReceiver<Box<Finished>>,
    stopping: watch::Sender<bool>,
    lifeline: watch::Sender<Instant>,
}

impl Stage {
    fn new(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Stage {
        let receiver = Receiver::start(script).unwrap();
        let endpoint = Endpoint {
            concurrency: 1,
            batch: Some(Batch::default()),
            ..Endpoint::new("shop", receiver.url("/").parse().unwrap())
        };
        let client = Client::new(&endpoint).unwrap();
        let (lifeline, until) = Lifeline::new(Instant::now(), Duration::from_secs(60));
        let (finished, inbox) = mpsc::unbounded_channel();
        let (stopping, stopped) = watch::channel(false);
        Stage {
            receiver,
            destination: Destination::new(&Arc::new(endpoint), &client),
            tasks: JoinSet::new(),
            desk: Desk {
                finished,
                lifeline: until,
                total: Arc::new(Semaphore::new(8)),
                stopping: stopped,
                tracer: Tracer::new(StdRng::seed_from_u64(1), None),
                metrics: Metrics::new(),
            },
            inbox,
            stopping,
            lifeline,
        }
    }

    fn start(&mut self, deliveries: Vec<Delivery>) {
        let (desk, tasks) = (&self.desk, &mut self.tasks);
        self.destination
            .start(deliveries, Order::None, |_| None, desk, tasks);
    }

    /// What is reported by the time all tasks have ended, by id.
    async fn reported(&mut self) -> Vec<Box<Finished>> {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(SOON, ended).await.unwrap();
        let mut all = Vec::new();
        while let Ok(finished) = self.inbox.try_recv() {
            all.push(finished);
        }
        all.sort_by_key(|finished| finished.delivery.id);
        let ids: Vec<u128> = all.iter().map(|one| one.delivery.id.as_u128()).collect();
        assert_eq!(ids, (1..=3).collect::<Vec<_>>(), "each of the three once");
        all
    }

    /// How many messages each request had.
    fn sizes(&self) -> Vec<String> {
        let requests = self.receiver.requests();
        let size = |request: &Request| request.header("outbox-batch").unwrap().to_owned();
        requests.iter().map(size).collect()
    }
}

fn classes(reported: &[Box<Finished>]) -> Vec<Option<Class>> {
    let class = |one: &Finished| Some(one.outcome.as_ref()?.class);
    reported.iter().map(|one| class(one)).collect()
}

/// The statuses of the requests that were told of.
fn heard(reported: &[Box<Finished>]) -> Vec<Option<u16>> {
    let all = reported.iter().flat_map(|one| one.heard.as_ref().unwrap());
    all.map(|request| request.outcome.status).collect()
}

fn given_back(reported: &[Box<Finished>]) -> bool {
    let back = |one: &Finished| one.started.is_none() && one.outcome.is_none();
    reported.iter().all(|one| back(one))
}

#[test]
fn a_claim_is_cut_by_number_and_size_in_its_order() {
    let config = Batch {
        messages: 3,
        bytes: 100,
    };
    let policy = Arc::new(endpoint("shop", ""));
    // Attempts and sizes, and the batches that come of them.
    type Row = (&'static [(u32, usize)], &'static [&'static [usize]]);
    let table: [Row; 7] = [
        (&[], &[]),
        (&[(0, 10); 2], &[&[0, 1]]),
        (&[(0, 10); 7], &[&[0, 1, 2], &[3, 4, 5], &[6]]),
        (&[(0, 50), (0, 50), (0, 1)], &[&[0, 1], &[2]]),
        (&[(0, 1), (0, 500), (0, 1)], &[&[0], &[1], &[2]]),
        (&[(2, 1), (3, 1), (2, 1)], &[&[1], &[0, 2]]),
        (&[(3, 1), (9, 1)], &[&[0], &[1]]),
    ];
    for (messages, want) in table {
        let finished = |(n, &(attempts, size)): (u8, &(u32, usize))| {
            Box::new(Finished {
                endpoint: "shop".into(),
                policy: policy.clone(),
                retry: None,
                delivery: delivery(n, attempts, size),
                loaded: Instant::now(),
                started: None,
                outcome: None,
                behind: false,
                again: false,
                span: None,
                hold: false,
                heard: Some(Vec::new()),
            })
        };
        let messages = (0..).zip(messages).map(finished);
        let batches = batch::cut(messages, &config);
        let seq = |one: &Finished| usize::try_from(one.delivery.seq).unwrap();
        let found: Vec<Vec<usize>> = batches
            .iter()
            .map(|batch| batch.iter().map(|one| seq(one)).collect())
            .collect();
        assert_eq!(found, want);
    }
}

#[tokio::test]
async fn a_batch_is_one_request_whose_outcome_is_that_of_each() {
    let mut stage = Stage::new(|_| Reply::status(503).header("retry-after", "7"));
    stage.start(three());
    let reported = stage.reported().await;
    assert_eq!(stage.sizes(), ["3"]);
    assert_eq!(classes(&reported), [Some(Class::Unavailable); 3]);
    assert_eq!(heard(&reported), [Some(503)], "told of once");
    let started = reported[0].started;
    assert!(
        reported
            .iter()
            .all(|one| one.started == started && started.is_some())
    );
}

#[tokio::test]
async fn what_ends_a_task_before_its_request_gives_all_back() {
    let endings: [fn(&Stage); 4] = [
        |stage| {
            stage.stopping.send_replace(true);
        },
        |stage| stage.destination.retire(),
        |stage| {
            let gate = &stage.destination.gate;
            gate.send_replace(Instant::now() + SOON);
        },
        |stage| {
            stage.lifeline.send_replace(Instant::now());
        },
    ];
    for end in endings {
        let mut stage = Stage::new(|_| Reply::status(200));
        // Its worker waits for a place in the total.
        let total = stage.desk.total.clone();
        let taken = total.acquire_many_owned(8).await.unwrap();
        stage.start(three());
        tokio::task::yield_now().await;
        end(&stage);
        let reported = stage.reported().await;
        assert!(given_back(&reported));
        assert_eq!((stage.receiver.count(), heard(&reported).len()), (0, 0));
        drop(taken);
    }
}

/// One slot, and what waits behind the request that is in it.
#[tokio::test]
async fn what_waits_for_a_slot_is_given_back_at_once_when_the_endpoint_closes() {
    let later = Instant::now() + Duration::from_secs(60);
    let endings: [fn(&mut Stage, Instant); 3] = [
        |stage, later| stage.destination.close(later, false),
        |stage, _| stage.destination.retire(),
        |stage, _| stage.destination.give_back(),
    ];
    for end in endings {
        let mut stage = Stage::new(|_| Reply::never());
        let mut messages = three();
        stage.start(messages.drain(..1).collect());
        stage.receiver.wait_for(1, SOON).await.unwrap();
        stage.start(messages);
        end(&mut stage, later);
        let mut back: Vec<Box<Finished>> = Vec::new();
        while let Ok(finished) = stage.inbox.try_recv() {
            back.push(finished);
        }
        assert_eq!(back.len(), 2);
        assert!(given_back(&back));
    }
}

/// A worker that panics takes its slot with it; another one goes on with what waits.
#[tokio::test]
async fn a_slot_is_filled_again_after_a_panic() {
    let mut stage = Stage::new(|_| Reply::never());
    stage.start(three());
    stage.receiver.wait_for(1, SOON).await.unwrap();
    stage.start((4..=5).map(|n| delivery(n, 0, 1)).collect());
    // As a panic would, it ends the task and not the queue.
    stage.tasks.abort_all();
    while stage.tasks.join_next().await.is_some() {}
    stage.destination.hire(&stage.desk, &mut stage.tasks);
    stage.receiver.wait_for(2, SOON).await.unwrap();
    assert_eq!(stage.receiver.most_in_flight(), 1);
}

#[tokio::test]
async fn what_ends_a_request_has_aborted_each_of_its_messages() {
    for abort in [false, true] {
        let mut stage = Stage::new(|_| Reply::never());
        stage.start(three());
        stage.receiver.wait_for(1, SOON).await.unwrap();
        if abort {
            stage.tasks.abort_all();
        } else {
            stage.lifeline.send_replace(Instant::now());
        }
        let reported = stage.reported().await;
        assert_eq!(classes(&reported), [Some(Class::Aborted); 3]);
        assert!(reported.iter().all(|one| one.started.is_some()));
        assert!(heard(&reported).is_empty());
    }
}

#[tokio::test]
async fn a_panic_is_that_of_each_message_that_was_started() {
    for started in [1, 3] {
        let mut stage = Stage::new(|_| Reply::status(200));
        let policy = stage.destination.endpoint.clone();
        let now = Instant::now();
        let finished = |delivery: Delivery| {
            Box::new(Finished {
                endpoint: "shop".into(),
                policy: policy.clone(),
                retry: None,
                started: (delivery.seq <= started).then_some(now),
                delivery,
                loaded: now,
                outcome: None,
                behind: false,
                again: false,
                span: None,
                hold: false,
                heard: Some(Vec::new()),
            })
        };
        let ticket = Ticket {
            finished: stage.desk.finished.clone(),
            left: three().into_iter().map(finished).collect(),
        };
        stage.tasks.spawn(async move {
            let _ticket = ticket;
            panic!("a fault of the relay, as this test wants it");
        });
        let reported = stage.reported().await;
        let mut want = [Some(Class::Panicked); 3];
        if started == 1 {
            want = [Some(Class::Panicked), None, None];
        }
        assert_eq!(classes(&reported), want);
    }
}

#[tokio::test]
async fn a_message_that_has_expired_is_left_out() {
    let mut stage = Stage::new(|_| Reply::status(200));
    let mut deliveries = three();
    deliveries[1].expires_in = Some(Duration::ZERO);
    deliveries[2].expires_in = Some(Duration::from_secs(60));
    stage.start(deliveries);
    let reported = stage.reported().await;
    assert_eq!(stage.sizes(), ["2"]);
    let success = Some(Class::Success);
    assert_eq!(classes(&reported), [success, None, success]);
    assert!(given_back(&reported[1..2]), "its end is the loop's affair");

    let expired = |mut delivery: Delivery| {
        delivery.expires_in = Some(Duration::ZERO);
        delivery
    };
    stage.start(three().into_iter().map(expired).collect());
    assert!(given_back(&stage.reported().await));
    assert_eq!(stage.receiver.count(), 1, "nothing is left to send");
}

#[tokio::test]
async fn a_batch_that_is_refused_is_sent_message_by_message() {
    let mut stage = Stage::new(|request| {
        let poison = String::from_utf8_lossy(&request.body).contains("0000002\"");
        Reply::status(if poison { 422 } else { 200 })
    });
    stage.start(three());
    let reported = stage.reported().await;
    assert_eq!(stage.sizes(), ["3", "1", "1", "1"]);
    assert_eq!(stage.receiver.most_in_flight(), 1);
    let good = Some(Class::Success);
    let want = [good, Some(Class::Rejected), good];
    assert_eq!(classes(&reported), want);
    let requests = [422, 200, 422, 200].map(Some);
    assert_eq!(heard(&reported), requests, "each request is told of once");
    let first = reported[0].heard.as_ref().unwrap();
    assert!(first[0].started < first[1].started);
    assert_eq!(reported[0].started, Some(first[1].started));

    // One alone has its answer.
    let mut stage = Stage::new(|_| Reply::status(422));
    stage.destination.endpoint = Arc::new(Endpoint {
        batch: Some(Batch {
            messages: 1,
            bytes: 1,
        }),
        ..(*stage.destination.endpoint).clone()
    });
    stage.start(three());
    assert_eq!(classes(&stage.reported().await), [Some(Class::Rejected); 3]);
    assert_eq!(stage.sizes(), ["1", "1", "1"]);
}

#[tokio::test]
async fn messages_of_a_refused_batch_that_were_not_sent_alone_are_given_back() {
    let mut stage = Stage::new(|request| match request.header("outbox-batch") {
        Some("3") => Reply::status(413),
        _ => Reply::never(),
    });
    stage.start(three());
    stage.receiver.wait_for(2, SOON).await.unwrap();
    stage.tasks.abort_all();
    let reported = stage.reported().await;
    assert_eq!(classes(&reported), [Some(Class::Aborted), None, None]);
    assert!(given_back(&reported[1..]));
    assert_eq!(heard(&reported), [Some(413)]);

    // Closed while the first is answered: the others wait for another claim.
    let gate = Arc::new(OnceLock::<watch::Sender<Instant>>::new());
    let closing = gate.clone();
    let mut stage = Stage::new(move |request| match request.header("outbox-batch") {
        Some("3") => Reply::status(413),
        _ => {
            let gate = closing.get().unwrap();
            gate.send_replace(Instant::now() + SOON);
            Reply::status(503)
        }
    });
    gate.set(stage.destination.gate.clone()).unwrap();
    stage.start(three());
    let reported = stage.reported().await;
    assert_eq!(classes(&reported), [Some(Class::Unavailable), None, None]);
    assert!(given_back(&reported[1..]));
}
