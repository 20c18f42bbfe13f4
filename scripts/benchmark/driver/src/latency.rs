//! From a commit to the request: how long a message waits for its relay.
//!
//! The writer's clock says when COMMIT was answered, the sink's clock when the message came: they are one clock.
use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    Failure,
    contender::payload,
    database::{Database, connect},
    lab::Lab,
    report::{median, quantile, round},
    sink::now,
};

/// How messages are written.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// In a second.
    rate: f64,
    duration: Duration,
    writers: usize,
    /// How long a transaction stays open after its INSERT.
    open: Duration,
    /// So many topics in turn: `bench.0`, `bench.1`, …
    topics: u64,
}

/// p5.
pub(crate) async fn latency(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let database = lab.outbox("b_latency").await?;
    let relay = lab.simple_relay(&database, "latency", "/")?;
    sleep(Duration::from_secs(1)).await;
    let duration = lab.scale(Duration::from_secs(1), Duration::from_secs(10));
    let usual = Load {
        rate: 200.0,
        duration,
        writers: 8,
        open: Duration::ZERO,
        topics: 1,
    };
    let loads = [
        ("200/s", usual),
        (
            "200/s, open 20 ms",
            Load {
                writers: 16,
                open: Duration::from_millis(20),
                ..usual
            },
        ),
        (
            "2000/s",
            Load {
                rate: 2000.0,
                writers: 16,
                ..usual
            },
        ),
    ];
    let mut found: [Vec<(f64, f64)>; 3] = Default::default();
    for number in 1..=lab.rounds() {
        for ((name, load), found) in loads.iter().zip(&mut found) {
            let waits = waits(lab, &database, *load).await?;
            let (p50, p99) = (quantile(&waits, 0.5), quantile(&waits, 0.99));
            lab.report.line(
                "latency",
                &json!({"load": name, "round": number, "messages": waits.len(), "p50_ms": round(p50), "p99_ms": round(p99),
                    "max_ms": round(quantile(&waits, 1.0))}),
            );
            found.push((p50, p99));
        }
    }
    drop(relay);
    let p50 = |at: usize| median(&found[at].iter().map(|found| found.0).collect::<Vec<_>>());
    let p99 = |at: usize| median(&found[at].iter().map(|found| found.1).collect::<Vec<_>>());
    lab.report
        .row("\nlatency, commit → request (medians)         p50 ms   p99 ms".to_owned());
    for (at, (name, _)) in loads.iter().enumerate() {
        lab.report
            .row(format!("{name:<40} {:>9.2} {:>8.2}", p50(at), p99(at)));
    }
    lab.report.figure("p5_p50", p50(0));
    lab.report.figure("p5_p99", p99(0));
    lab.report.figure("p5_open_p50", p50(1));
    lab.report.figure("p5_open_p99", p99(1));
    lab.report.figure("p5_2000_p99", p99(2));
    Ok(())
}

/// p11: ten endpoints, of which one hangs.
pub(crate) async fn isolation(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let load = Load {
        rate: 500.0,
        duration: lab.scale(Duration::from_millis(700), Duration::from_secs(6)),
        writers: 8,
        open: Duration::ZERO,
        topics: 10,
    };
    let mut p99 = [Vec::new(), Vec::new()];
    for number in 1..=lab.rounds() {
        for (p99, first) in p99.iter_mut().zip(["/", "/hang"]) {
            let database = lab.outbox("b_isolation").await?;
            let mut config = String::new();
            for at in 0..10 {
                let path = if at == 0 { first } else { "/" };
                config.push_str(&lab.endpoint(&format!("e{at}"), path, &format!("bench.{at}")));
            }
            let relay = lab.relay(&database, "isolation", &config)?;
            sleep(Duration::from_millis(500)).await;
            let waits = waits(lab, &database, load).await?;
            relay_gone(relay);
            let value = quantile(&waits, 0.99);
            lab.report.line("isolation", &json!({"first endpoint": first, "round": number, "messages": waits.len(), "p99_ms": round(value)}));
            p99.push(value);
        }
    }
    lab.report.figure("p11", median(&p99[1]) / median(&p99[0]));
    Ok(())
}

/// One that hangs would be waited for.
fn relay_gone(mut relay: crate::process::Process) {
    relay.child.kill().ok();
    relay.child.wait().ok();
}

/// Writes messages at a steady rate, and returns how many milliseconds each waited. Where there are several topics, those
/// of the first one don't count.
async fn waits(lab: &mut Lab<'_>, database: &Database, load: Load) -> Result<Vec<f64>, Failure> {
    let count = (load.rate * load.duration.as_secs_f64()) as u64;
    lab.sink.reset(count).await?;
    let committed = Arc::new(Mutex::new(vec![0_u64; usize::try_from(count)?]));
    let begin = Instant::now() + Duration::from_millis(50);
    let mut writers = JoinSet::new();
    for writer in 0..load.writers {
        let client = connect(&database.url).await?;
        let committed = Arc::clone(&committed);
        let numbers = (writer as u64..count).step_by(load.writers);
        writers.spawn(async move {
            let insert = client
                .prepare("INSERT INTO outbox.messages (topic, payload) VALUES ($1, $2::text::json)")
                .await?;
            let mut topic = String::new();
            for n in numbers {
                sleep_until(begin + Duration::from_secs_f64(n as f64 / load.rate)).await;
                topic.clear();
                write!(topic, "bench.{}", n % load.topics)?;
                if load.open.is_zero() {
                    client.execute(&insert, &[&topic, &payload(n)]).await?;
                } else {
                    client.batch_execute("BEGIN").await?;
                    client.execute(&insert, &[&topic, &payload(n)]).await?;
                    sleep(load.open).await;
                    client.batch_execute("COMMIT").await?;
                }
                let at = now();
                committed.lock().expect("nobody panics")[usize::try_from(n)?] = at;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    let counts = |n: usize| load.topics == 1 || n as u64 % load.topics != 0;
    let committed = committed.lock().expect("nobody panics").clone();
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let arrivals = lab.sink.arrivals().await?;
        let pairs = arrivals
            .iter()
            .zip(&committed)
            .enumerate()
            .filter(|(n, _)| counts(*n));
        if pairs.clone().all(|(_, (arrival, _))| *arrival > 0) {
            // A request can be on its way before the writer has its answer.
            let wait = |(arrival, committed): (&u64, &u64)| {
                arrival.saturating_sub(*committed) as f64 / 1e6
            };
            return Ok(pairs.map(|(_, pair)| wait(pair)).collect());
        }
        if Instant::now() > deadline {
            return Err("messages are missing".into());
        }
        sleep(Duration::from_millis(20)).await;
    }
}
