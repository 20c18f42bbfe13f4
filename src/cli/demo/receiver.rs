//! The receiver of the demo, and its ledger.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use uuid::Uuid;

use crate::lab::receiver::{Options, Receiver, Reply, Request};

/// A receiver that fails on dice.
pub(super) struct Misbehaving {
    receiver: Receiver,
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Default)]
struct Ledger {
    /// Every message that came in, however it was answered.
    seen: BTreeSet<Uuid>,
    /// How many times each was answered with 200.
    accepted: BTreeMap<Uuid, u64>,
    /// Answered with 422.
    refused: BTreeSet<Uuid>,
}

impl Misbehaving {
    pub(super) fn start() -> io::Result<Misbehaving> {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let written = ledger.clone();
        // Seeded: a demo that fails can be played again.
        let dice = Mutex::new(StdRng::seed_from_u64(42));
        let script = move |request: &Request| {
            let (roll, delay) = {
                let mut dice = dice.lock().unwrap_or_else(PoisonError::into_inner);
                (
                    dice.random_range(0..100_u32),
                    dice.random_range(50..200_u64),
                )
            };
            let mut ledger = written.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.answer(request, roll, Duration::from_millis(delay))
        };
        let receiver = Receiver::start_with(
            Options {
                keep: 0,
                keep_bodies: false,
            },
            script,
        )?;
        Ok(Misbehaving { receiver, ledger })
    }

    pub(super) fn url(&self) -> String {
        self.receiver.url("/orders")
    }

    /// Messages that were accepted so far.
    pub(super) fn delivered(&self) -> usize {
        self.ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .accepted
            .len()
    }

    /// Those that were seen, those that were accepted, and how many were accepted more often than once, in all.
    pub(super) fn ledger(&self) -> (BTreeSet<Uuid>, BTreeSet<Uuid>, u64) {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let duplicates = ledger.accepted.values().map(|times| times - 1).sum();
        (
            ledger.seen.clone(),
            ledger.accepted.keys().copied().collect(),
            duplicates,
        )
    }

    pub(super) fn refused(&self) -> BTreeSet<Uuid> {
        self.ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .refused
            .clone()
    }
}

impl Ledger {
    fn answer(&mut self, request: &Request, roll: u32, delay: Duration) -> Reply {
        // What an idempotent receiver does: the key is a quoted string, the message's id.
        let key = request
            .header("idempotency-key")
            .and_then(|key| key.trim_matches('"').parse().ok());
        let Some(id) = key else {
            return Reply::status(400).body("no Idempotency-Key");
        };
        self.seen.insert(id);
        if request
            .body
            .windows(b"\"refuse\"".len())
            .any(|word| word == b"\"refuse\"")
        {
            self.refused.insert(id);
            return Reply::status(422).body("this order can't be shipped");
        }
        match roll {
            0..10 => Reply::status(503).body("too busy"),
            10..13 => Reply::hang_up(),
            13..18 => {
                *self.accepted.entry(id).or_default() += 1;
                Reply::status(200).body("late").after(delay)
            }
            _ => {
                *self.accepted.entry(id).or_default() += 1;
                Reply::status(200).body("ok")
            }
        }
    }
}
