//! A relay in a small container, a relay that runs for long, and a migration beside an application that works.
use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    Failure,
    contender::insert,
    database::{Database, connect},
    lab::Lab,
    process,
    report::round,
};

/// Payloads of one size, numbered from 0, that compress well in the table and not at all on their way.
const PADDED: &str = r#"INSERT INTO outbox.messages (topic, payload)
    SELECT 'bench.order', ('{"n":' || g || ',"pad":"' || repeat('x', $2::integer) || '"}')::json
      FROM generate_series(0, $1::bigint - 1) g"#;

/// p14: memory that doesn't grow, and payloads that fit.
pub(crate) async fn memory(lab: &mut Lab<'_>) -> Result<(), Failure> {
    endurance(lab).await?;
    // What the README says for a container of 64 MiB.
    for (figure, count, size, budget, time) in [
        ("p14_large", lab.scale(30, 100), 10 << 20, "8MiB", 240),
        (
            "p14_many",
            lab.scale(50_000, 1_000_000),
            18_000,
            "16MiB",
            lab.scale(3, 30),
        ),
    ] {
        let database = lab.outbox("b_memory").await?;
        lab.sink.reset(u64::try_from(count)?).await?;
        database
            .client
            .execute(PADDED, &[&i64::from(count), &size])
            .await?;
        let config = format!(
            "memory = \"{budget}\"\n{}",
            lab.endpoint("sink", "/", "bench.**")
        );
        let relay = lab.relay_with(
            &database,
            "memory",
            &config,
            &[("MALLOC_MMAP_THRESHOLD_", "131072")],
        )?;
        let end = Instant::now() + Duration::from_secs(time);
        let mut seen = lab.sink.seen().await?;
        while Instant::now() < end && seen.unique < f64::from(count) {
            sleep(Duration::from_millis(100)).await;
            seen = lab.sink.seen().await?;
        }
        let most = process::memory(relay.pid()).1 / f64::from(1 << 20);
        relay.stop();
        lab.report.line(
            "memory",
            &json!({"messages": count, "bytes": size, "budget": budget, "delivered": seen.unique, "peak_mib": round(most)}),
        );
        lab.report.figure(figure, most);
        lab.server.drop_database("b_memory").await?;
    }
    Ok(())
}

/// Memory after each part of a long run; its slope is that of the line through the last three quarters.
async fn endurance(lab: &mut Lab<'_>) -> Result<(), Failure> {
    const PARTS: u64 = 20;
    let part = lab.scale(2_000_u64, 50_000);
    let database = lab.outbox("b_memory").await?;
    lab.sink.reset(part * PARTS).await?;
    let relay = lab.simple_relay(&database, "memory", "/")?;
    let mut points = Vec::new();
    for number in 0..PARTS {
        insert(
            &database,
            "bench.order",
            number * part..(number + 1) * part,
            0,
        )
        .await?;
        lab.until_seen(((number + 1) * part) as f64, Duration::from_secs(120))
            .await?;
        points.push((((number + 1) * part) as f64, process::memory(relay.pid()).0));
    }
    relay.stop();
    let late = &points[points.len() / 4..];
    let slope = slope(late) * 1e6 / f64::from(1 << 20);
    let megabytes: Vec<serde_json::Value> = points
        .iter()
        .map(|(_, bytes)| round(bytes / f64::from(1 << 20)))
        .collect();
    lab.report.line(
        "memory",
        &json!({"messages": part * PARTS, "after_each_part_mib": megabytes, "mib_per_million": round(slope)}),
    );
    lab.report.figure("p14_slope", slope);
    lab.server.drop_database("b_memory").await
}

/// Of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let product: f64 = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    let square: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    product / square
}

/// p15: how long an INSERT took at most while a migration ran.
pub(crate) async fn migrate(lab: &mut Lab<'_>) -> Result<(), Failure> {
    const WRITERS: usize = 8;
    let rows = lab.scale(200_000_u64, 5_000_000);
    let database = lab.outbox("b_migrate").await?;
    for start in (0..rows).step_by(1_000_000) {
        insert(
            &database,
            "bench.order",
            start..(start + 1_000_000).min(rows),
            0,
        )
        .await?;
    }
    let mut worst = [0.0_f64; 2];
    let mut took = Vec::new();
    for (place, migrations) in [(0, 0), (1, 5)] {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            writers.spawn(write(database.url.clone(), stopped.clone()));
        }
        sleep(Duration::from_secs(2)).await;
        for number in 0..migrations {
            // With and without the trigger: each time it is made or removed.
            let doorbell = ["--no-doorbell", "--doorbell"][number % 2];
            let started = Instant::now();
            spawned(lab, &database, doorbell).await?;
            took.push(started.elapsed().as_secs_f64());
            sleep(Duration::from_secs(1)).await;
        }
        sleep(Duration::from_secs(1)).await;
        stop.send_replace(true);
        while let Some(most) = writers.join_next().await {
            worst[place] = worst[place].max(most?.map_err(|error| error.to_string())?);
        }
    }
    let migration = took.iter().copied().fold(0.0, f64::max);
    lab.report.line(
        "migrate",
        &json!({"rows": rows, "writers": WRITERS, "migrations": took.len(), "slowest_migration_s": round(migration),
            "worst_insert_ms": round(worst[1] * 1e3), "worst_insert_without_ms": round(worst[0] * 1e3)}),
    );
    lab.report.figure("p15", worst[1] * 1e3);
    lab.server.drop_database("b_migrate").await
}

/// Runs `migrate` while the writers go on: they share this thread.
async fn spawned(lab: &Lab<'_>, database: &Database, doorbell: &str) -> Result<(), Failure> {
    let mut command: Command = lab.relay_command();
    command
        .env("DATABASE_URL", &database.url)
        .args(["migrate", doorbell]);
    let mut command = tokio::process::Command::from(command);
    let output = command.kill_on_drop(true).output().await?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// Seconds of the slowest transaction.
async fn write(url: String, stopped: tokio::sync::watch::Receiver<bool>) -> Result<f64, Failure> {
    let client = connect(&url).await?;
    let mut most = 0.0_f64;
    while !*stopped.borrow() {
        let started = Instant::now();
        client
            .batch_execute("BEGIN; INSERT INTO outbox.messages (topic, payload) VALUES ('bench.order', '{\"n\":1}'); COMMIT")
            .await?;
        most = most.max(started.elapsed().as_secs_f64());
    }
    Ok(most)
}
