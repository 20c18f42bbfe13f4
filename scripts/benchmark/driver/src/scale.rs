//! Claims over tables that are large, and under a snapshot that is old.
//!
//! A claim's time is what PostgreSQL counted in `outbox.claim`, per call, while a relay empties a lane: with the batches
//! and sweeps that the loop really makes. Vacuum and statistics are off in these databases, as they are late in the worst.
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_postgres::Client;

use crate::{
    Failure,
    contender::insert,
    database::{Database, connect},
    drain::{End, measure},
    lab::Lab,
    report::{median, round},
};

/// Only the rows of closed keys are left.
const EMPTY: &str = "SELECT count(*) <= 1000 FROM outbox.messages";

const LATE: &str = "ALTER TABLE outbox.messages SET (autovacuum_enabled = off)";

/// What stands in the way, and by which figure it is known. Compared with the first one, or with the first in order.
struct Case {
    figure: Option<&'static str>,
    name: &'static str,
    in_order: bool,
    /// Rows, in a quick run and in a full one.
    rows: (u64, u64),
    sql: &'static str,
}

const CASES: &[Case] = &[
    Case { figure: None, name: "empty", in_order: false, rows: (0, 0), sql: "" },
    Case {
        figure: Some("p8_backoff"),
        name: "backoff",
        in_order: false,
        rows: (100_000, 1_000_000),
        sql: "INSERT INTO outbox.messages (topic, payload, due_at, attempts)
              SELECT 'bench.order', '{\"n\":-1}', now() + interval '1 day' + g * interval '1 ms', 1 FROM generate_series(1, $1::bigint) g",
    },
    Case {
        figure: Some("p8_breaker"),
        name: "breaker",
        in_order: false,
        rows: (100_000, 1_000_000),
        sql: "WITH broken AS (
                INSERT INTO outbox.endpoints (endpoint, breaker, breaker_until, openings)
                VALUES ('broken', 'open', now() + interval '1 day', 1))
              INSERT INTO outbox.messages (topic, payload) SELECT 'broken.order', '{\"n\":-1}' FROM generate_series(1, $1::bigint) g",
    },
    Case {
        figure: Some("p8_history"),
        name: "history",
        in_order: false,
        rows: (100_000, 5_000_000),
        sql: "WITH delivered AS (
                INSERT INTO outbox.delivered (delivered_at, created_at, id, seq, attempts, lost, generation, size, topic,
                    lane_endpoint, endpoint, payload)
                SELECT now(), now(), gen_random_uuid(), -g, 1, 0, 0, 8, 'bench.order', '', 'sink', '{\"n\":-1}'
                  FROM generate_series(1, $1::bigint) g
                RETURNING id, seq)
              INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, status, topic, endpoint,
                outcome, settlement, relay)
              SELECT now(), interval '1 ms', d.id, d.seq, 0, 1, 200, 'bench.order', 'sink', 'success', 'delivered', 'bench'
                FROM delivered d",
    },
    Case { figure: None, name: "empty, in order", in_order: true, rows: (0, 0), sql: "" },
    Case {
        figure: Some("p8_key"),
        name: "closed key",
        in_order: true,
        rows: (10_000, 100_000),
        sql: "WITH held AS (
                INSERT INTO outbox.held_keys (topic, lane_endpoint, key, endpoint, id, seq)
                VALUES ('bench.order', '', 'closed', 'sink', gen_random_uuid(), 0))
              INSERT INTO outbox.messages (topic, key, payload)
              SELECT 'bench.order', 'closed', '{\"n\":-1}' FROM generate_series(1, $1::bigint) g",
    },
];

/// p8.
pub(crate) async fn large(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let mut databases = Vec::new();
    for (at, case) in CASES.iter().enumerate() {
        let database = lab.outbox(&format!("b_large_{at}")).await?;
        database.run(LATE).await?;
        let rows = lab.scale(case.rows.0, case.rows.1);
        if rows > 0 {
            database
                .client
                .execute(case.sql, &[&i64::try_from(rows)?])
                .await?;
        }
        databases.push(database);
    }
    // What was just loaded is not written back while claims are timed.
    databases[0].run("CHECKPOINT").await?;
    let end = End {
        messages: lab.scale(2_000, 20_000),
        after: Duration::from_secs(30),
    };
    let mut times = vec![Vec::new(); CASES.len()];
    for number in 1..=lab.rounds() {
        for ((case, database), times) in CASES.iter().zip(&databases).zip(&mut times) {
            let mut config = lab.endpoint("sink", "/", "bench.**");
            if case.in_order {
                config.push_str("order = \"key\"\n");
            }
            config.push_str(&lab.endpoint("broken", "/", "broken.**"));
            let (time, rate) = turn(lab, database, &config, None, end).await?;
            lab.report.line("large", &json!({"case": case.name, "round": number, "claim_ms": round(time), "rate": round(rate)}));
            times.push(time);
        }
    }
    let reference = |in_order: bool| {
        let at = CASES
            .iter()
            .position(|case| case.figure.is_none() && case.in_order == in_order);
        at.map_or(f64::NAN, |at| median(&times[at]))
    };
    lab.report
        .row("\nclaim time over large tables (medians)      rows        ms   ÷ empty".to_owned());
    for (case, times) in CASES.iter().zip(&times) {
        let ratio = median(times) / reference(case.in_order);
        let rows = lab.scale(case.rows.0, case.rows.1);
        lab.report.row(format!(
            "{:<36} {rows:>11} {:>9.2} {ratio:>9.2}",
            case.name,
            median(times)
        ));
        if let Some(figure) = case.figure {
            lab.report.figure(figure, ratio);
        }
    }
    if lab.options.quick {
        lab.report
            .note("p8 was measured over smaller tables than its targets are for (--quick)");
    }
    drop(databases);
    for at in 0..CASES.len() {
        lab.server.drop_database(&format!("b_large_{at}")).await?;
    }
    discover(lab).await
}

/// The skip scan over lanes, as the relay runs it.
async fn discover(lab: &mut Lab<'_>) -> Result<(), Failure> {
    const BEGIN: &str = include_str!("../../../../sql/begin.sql");
    const DISCOVER: &str = include_str!("../../../../sql/discover.sql");
    let database = lab.outbox("b_discover").await?;
    database.run(LATE).await?;
    let mut lanes = 0;
    for (wanted, figure) in [(1_000, "p8_discover_1000"), (10_000, "p8_discover_10000")] {
        let sql = "INSERT INTO outbox.messages (topic, payload)
                   SELECT 'lane.' || g, '{\"n\":-1}' FROM generate_series($1::bigint + 1, $2::bigint) g, generate_series(1, 5)";
        database.client.execute(sql, &[&lanes, &wanted]).await?;
        lanes = wanted;
        let mut times = Vec::new();
        for _ in 0..7 {
            database.run(BEGIN).await?;
            let started = Instant::now();
            let found = database.client.query(DISCOVER, &[&false]).await?.len();
            times.push(started.elapsed().as_secs_f64() * 1e3);
            database.run("COMMIT").await?;
            if i64::try_from(found)? != lanes {
                return Err(format!("{found} lanes instead of {lanes}").into());
            }
        }
        lab.report.line(
            "large",
            &json!({"case": "discover", "lanes": lanes, "ms": round(median(&times))}),
        );
        lab.report.figure(figure, median(&times));
    }
    lab.server.drop_database("b_discover").await
}

/// p7: as many messages again and again through a table that no vacuum can clean, because a transaction is open.
pub(crate) async fn pinned(lab: &mut Lab<'_>) -> Result<(), Failure> {
    for (name, order, rate, claim) in [
        ("no order", "", "p7_loose_rate", "p7_loose_claim"),
        ("in order", "order = \"key\"\n", "p7_rate", "p7_claim"),
    ] {
        let [unpinned, pinned] = pin(lab, name, order).await?;
        lab.report.row(format!(
            "\nxmin pinned, {name}: {:.0}/s and {:.2} ms a claim; not pinned: {:.0}/s and {:.2} ms",
            pinned.1, pinned.0, unpinned.1, unpinned.0
        ));
        lab.report.figure(claim, pinned.0 / unpinned.0);
        lab.report.figure(rate, pinned.1 / unpinned.1);
    }
    if lab.options.quick {
        lab.report
            .note("p7 was measured after fewer messages than its target is for (--quick)");
    }
    Ok(())
}

/// Milliseconds of a claim and messages in a second, without and with an old snapshot.
async fn pin(lab: &mut Lab<'_>, what: &str, order: &str) -> Result<[(f64, f64); 2], Failure> {
    let aged: u64 = lab.scale(6_000, 500_000);
    let end = End {
        messages: lab.scale(2_000, 20_000),
        after: Duration::from_secs(60),
    };
    let config = format!(
        "{}{order}",
        lab.endpoint("sink", "/fail/15", "bench.**")
            .replace("[[routes]]", "rate = \"1000000/s\"\n[[routes]]")
    );
    let mut databases: Vec<(Database, Option<Client>)> = Vec::new();
    for name in ["b_unpinned", "b_pinned"] {
        let database = lab.outbox(name).await?;
        database
            .run(
                "INSERT INTO outbox.held_keys (topic, lane_endpoint, key, endpoint, id, seq)
                 SELECT 'bench.order', '', 'closed-' || g, 'sink', gen_random_uuid(), 0 FROM generate_series(1, 100) g;
                 INSERT INTO outbox.messages (topic, key, payload)
                 SELECT 'bench.order', 'closed-' || g % 100 + 1, '{\"n\":-1}' FROM generate_series(1, 1000) g",
            )
            .await?;
        let snapshot = if name == "b_pinned" {
            let client = connect(&database.url).await?;
            client
                .batch_execute(
                    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox.messages",
                )
                .await?;
            Some(client)
        } else {
            None
        };
        lab.sink.reset(aged).await?;
        insert(&database, "bench.order", 0..aged, 5_000).await?;
        let relay = lab.relay(&database, "contender", &config)?;
        let deadline = Instant::now() + Duration::from_secs(900);
        while !database.is(EMPTY).await? {
            if Instant::now() > deadline {
                return Err(
                    format!("{name}: {aged} messages were not delivered in 15 minutes").into(),
                );
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        relay.stop();
        databases.push((database, snapshot));
    }
    let mut found: [(Vec<f64>, Vec<f64>); 2] = Default::default();
    for number in 1..=lab.rounds() {
        for ((database, snapshot), (times, rates)) in databases.iter().zip(&mut found) {
            let (time, rate) = turn(lab, database, &config, Some(EMPTY), end).await?;
            let pinned = snapshot.is_some();
            lab.report.line(
                "pinned",
                &json!({"order": what, "pinned": pinned, "aged": aged, "round": number, "claim_ms": round(time), "rate": round(rate)}),
            );
            times.push(time);
            rates.push(rate);
        }
    }
    drop(databases);
    lab.server.drop_database("b_pinned").await?;
    lab.server.drop_database("b_unpinned").await?;
    Ok(found.map(|(times, rates)| (median(&times), median(&rates))))
}

/// Puts messages in, lets a fresh relay empty the lane, and says how many milliseconds a claim took, and its rate.
async fn turn(
    lab: &mut Lab<'_>,
    database: &Database,
    config: &str,
    settled: Option<&str>,
    end: End,
) -> Result<(f64, f64), Failure> {
    insert(database, "bench.order", 0..end.messages, 5_000).await?;
    let before = database.function("claim").await?;
    let start = |lab: &Lab<'_>| lab.relay(database, "contender", config);
    let run = measure(lab, &start, Some(database), settled, end).await?;
    let after = database.function("claim").await?;
    Ok(((after.1 - before.1) / (after.0 - before.0), run.rate))
}
