//! What a relay takes while it has nothing to do, and while it has very much.
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::{
    Failure,
    contender::insert,
    lab::Lab,
    process::{self, Process},
    report::{median, round},
};

/// p9.
pub(crate) async fn footprint(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let binary = std::fs::metadata(&lab.options.relay)?.len();
    lab.report.figure("p9_binary", binary as f64 / 1e6);

    let database = lab.outbox("b_footprint").await?;
    let mut starts = Vec::new();
    for number in 1..=5 {
        lab.sink.reset(1).await?;
        insert(&database, "bench.order", 0..1, 0).await?;
        let started = seconds();
        let relay = lab.simple_relay(&database, "footprint", "/")?;
        let seen = lab.until_seen(1.0, Duration::from_secs(10)).await?;
        let start = (seen.last - started) * 1e3;
        lab.report.line(
            "footprint",
            &json!({"round": number, "start_ms": round(start)}),
        );
        starts.push(start);
        relay.stop();
    }
    lab.report.figure("p9_start", median(&starts));

    let relay = lab.simple_relay(&database, "footprint", "/")?;
    sleep(Duration::from_secs(2)).await;
    let (idle, _) = process::memory(relay.pid());
    relay.stop();
    lab.report.figure("p9", idle / 1e6);
    let megabytes = binary as f64 / 1e6;
    lab.report.line(
        "footprint",
        &json!({"idle_mb": round(idle / 1e6), "binary_mb": round(megabytes)}),
    );
    lab.server.drop_database("b_footprint").await
}

/// p9_due.
pub(crate) async fn due(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let database = lab.outbox("b_footprint").await?;
    let rows = lab.scale(1_000_000, 10_000_000);
    lab.sink.reset(rows).await?;
    for start in (0..rows).step_by(1_000_000) {
        insert(&database, "bench.order", start..start + 1_000_000, 0).await?;
    }
    let mut relay = lab.simple_relay(&database, "footprint", "/")?;
    let end = Instant::now() + lab.scale(Duration::from_secs(2), Duration::from_secs(20));
    let mut most = 0.0_f64;
    while Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
        most = most.max(process::memory(relay.pid()).1);
    }
    let seen = lab.sink.seen().await?;
    if relay.ended() {
        return Err(format!("the relay ended; {}", lab.tail("footprint")).into());
    }
    relay.stop();
    let line = json!({"rows_due": rows, "due_mb": round(most / 1e6), "delivered": seen.unique});
    lab.report.line("due", &line);
    lab.report.figure("p9_due", most / 1e6);
    lab.server.drop_database("b_footprint").await
}

/// p10.
pub(crate) async fn idle(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let duration = lab.scale(Duration::from_secs(3), Duration::from_secs(20));
    for (relays, figure, cpu) in [(1, "p10", "p10_cpu"), (50, "p10_50", "p10_50_cpu")] {
        let database = lab.outbox("b_idle").await?;
        let mut running: Vec<Process> = Vec::new();
        for number in 0..relays {
            running.push(lab.simple_relay(&database, &format!("idle-{number}"), "/")?);
        }
        // What comes with a start is over, and told to the statistics.
        sleep(Duration::from_secs(6)).await;
        let own = |running: &[Process]| {
            running
                .iter()
                .map(|relay| process::usage(relay.pid()).cpu)
                .sum::<Duration>()
        };
        let before = (
            lab.server.transactions("b_idle").await?,
            own(&running),
            lab.server.cpu(),
            Instant::now(),
        );
        sleep(duration).await;
        let time = before.3.elapsed().as_secs_f64();
        let rate = (lab.server.transactions("b_idle").await? - before.0) / time / f64::from(relays);
        let own = (own(&running) - before.1).as_secs_f64() / time * 100.0;
        let server = (lab.server.cpu() - before.2).as_secs_f64() / time * 100.0;
        lab.report.line(
            "idle",
            &json!({"relays": relays, "transactions_per_relay": round(rate), "relays_cpu_percent": round(own),
                "database_cpu_percent": round(server)}),
        );
        lab.report.row(format!(
            "\n{relays} idle: {rate:.1} transactions/s each; CPU of all {own:.1} %, of the database {server:.1} % of a core"
        ));
        lab.report.figure(figure, rate);
        lab.report
            .figure(cpu, if relays == 1 { own } else { server });
        // All at once, not one after another.
        for relay in &running {
            relay.ask();
        }
    }
    lab.server.drop_database("b_idle").await
}

/// Since 1970, by the clock that the sink has.
fn seconds() -> f64 {
    crate::sink::now() as f64 / 1e9
}
