//! Everything that can go wrong goes wrong, at random, with real processes, a real server and a real receiver. Afterwards the
//! writers' ledger and the receiver's must agree.
//!
//! The seed is printed, and `OUTBOX_FAULTS_SEED` sets it; `OUTBOX_FAULTS_SECONDS` says for how long faults happen. A run can't be
//! repeated exactly, for processes race; the same seed draws the same faults. `scripts/soak` does this for an hour.
#![allow(
    clippy::print_stdout,
    reason = "the seed and the faults are what one looks at"
)]

use std::{env, sync::Arc, time::Duration};

use rand::{
    RngExt, SeedableRng,
    rngs::{StdRng, SysRng},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use self::{
    ledger::{Arrivals, Tried, open_keys, verdict, write},
    world::{Fault, World},
};

mod ledger;
mod points;
mod world;

const WRITERS: u64 = 4;

/// After the last fault: the longest wait is for relays that stall or are swallowed, and then for a lease time.
const RECOVERY: Duration = Duration::from_secs(60);

#[expect(
    clippy::disallowed_methods,
    reason = "how long and from which seed is the caller's to say"
)]
fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Faults for so long, one after the other, while writers write.
async fn survive(seed: u64, time: Duration, faults: impl Fn(&mut StdRng) -> Fault) {
    println!("OUTBOX_FAULTS_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let arrivals = Arc::new(Arrivals::default());
    let tried = Arc::new(Tried::default());
    let mut world = World::new(&arrivals, seed).await;
    let begun = Instant::now();
    let end = begun + time;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(
            world.writers_url(),
            writer,
            seed,
            end,
            Arc::clone(&tried),
        ));
    }
    let mut happened = 0;
    while Instant::now() < end {
        sleep(Duration::from_millis(rng.random_range(50..700))).await;
        let fault = faults(&mut rng);
        println!("{:7.2} s: {fault:?}", begun.elapsed().as_secs_f64());
        world.suffer(fault, &mut rng).await;
        happened += 1;
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    world.heal().await;
    let (client, _driver) = world.connect().await;
    let discarded = open_keys(&client, RECOVERY).await;
    world.stop().await;
    let verdict = verdict(&client, &arrivals, &tried, &discarded).await;
    println!(
        "{happened} faults, {} messages exposed to them, {} discarded: {verdict:?}",
        world.exposed,
        discarded.len()
    );
    assert_eq!(world.complaints(), Vec::<String>::new());
    assert!(verdict.committed > 50, "too little happened");
    // The receiver's own misbehaviour is no reason for a duplicate: it did not accept then.
    assert!(
        verdict.duplicates <= world.exposed,
        "more duplicates than what was on its way at a fault"
    );
    assert!(
        verdict.untold <= world.forgotten,
        "the history lacks requests: no more than {} could be forgotten",
        world.forgotten
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_lose_nothing_and_keep_the_order_of_keys() {
    let seed = number("OUTBOX_FAULTS_SEED")
        .unwrap_or_else(|| StdRng::try_from_rng(&mut SysRng).unwrap().random());
    let time = Duration::from_secs(number("OUTBOX_FAULTS_SECONDS").unwrap_or(15));
    survive(seed, time, Fault::draw).await;
}
