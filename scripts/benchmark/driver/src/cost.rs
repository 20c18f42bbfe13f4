//! What a message costs the database: claim, load, settle, history and archive, as the relay's loop calls them at a
//! concurrency of 64, with 2,048 messages more in flight on other relays.
//!
//! Beside it, in the same rounds and with batches of the same sizes, what most outboxes do: lock rows by an UPDATE of each,
//! then delete them. It gets the relay's tables, archive, history and planner settings, and makes no request.
use std::time::Duration;

use serde_json::json;
use tokio_postgres::types::Type;

use crate::{
    Failure,
    database::{Database, connect},
    drain::{self, End, Run, tell},
    lab::Lab,
    process,
    report::{median, round},
};

/// Messages in flight on other relays.
const ELSEWHERE: u64 = 2048;

const PLANNER: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
                       SET jit = off; SET plan_cache_mode = force_generic_plan";

const CLAIM: &str = "
    UPDATE outbox.messages m SET locked_by = $1::text::uuid, locked_until = clock_timestamp() + interval '15 s'
     WHERE m.endpoint = '' AND m.id = ANY (ARRAY(
            SELECT d.id FROM outbox.messages d
             WHERE d.topic = $2 AND d.endpoint = '' AND d.due_at IS NULL
               AND (d.locked_until IS NULL OR d.locked_until < clock_timestamp())
             ORDER BY d.seq LIMIT $3 FOR UPDATE SKIP LOCKED))
    RETURNING m.id::text, m.seq, m.attempts, m.created_at, m.payload::text";

const SETTLE: &str = "
    WITH gone AS (
        DELETE FROM outbox.messages m WHERE m.id = ANY ($1::text[]::uuid[]) AND m.endpoint = '' AND m.locked_by = $2::text::uuid RETURNING m.*
    ), archived AS (
        INSERT INTO outbox.delivered (delivered_at, created_at, id, seq, attempts, lost, generation, size, topic,
            lane_endpoint, endpoint, key, type, content_type, headers, payload, body)
        SELECT now(), g.created_at, g.id, g.seq, g.attempts + 1, g.lost, g.generation, g.size, g.topic, g.endpoint, 'sink',
               g.key, g.type, g.content_type, g.headers, g.payload, g.body
          FROM gone g
    )
    INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, status, topic, endpoint, key, outcome,
        settlement, relay)
    SELECT now(), interval '1 ms', g.id, g.seq, g.generation, g.attempts + 1, 200, g.topic, 'sink', g.key, 'success',
           'delivered', 'bench'
      FROM gone g";

/// p4.
pub(crate) async fn cost(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let messages = lab.scale(5_000, 40_000);
    let end = End {
        messages,
        after: Duration::from_secs(60),
    };
    for (template, keys) in [("t_cost", 0), ("t_cost_keyed", 5000)] {
        let database = lab.outbox(template).await?;
        // Those in flight elsewhere are the oldest, and alone under their keys.
        let elsewhere = messages..messages + ELSEWHERE;
        crate::contender::insert(
            &database,
            "bench.order",
            elsewhere,
            if keys > 0 { u64::from(u32::MAX) } else { 0 },
        )
        .await?;
        crate::contender::insert(&database, "bench.order", 0..messages, keys).await?;
        database.run("VACUUM (ANALYZE) outbox.messages").await?;
    }
    let database = lab.server.copy("t_cost", "t_cost_update").await?;
    database
        .run(
            "ALTER TABLE outbox.messages ADD locked_by uuid, ADD locked_until timestamptz;
             UPDATE outbox.messages SET locked_until = now() + interval '1 day'
              WHERE seq IN (SELECT seq FROM outbox.messages ORDER BY seq LIMIT 2048);",
        )
        .await?;
    database.run("VACUUM (ANALYZE) outbox.messages").await?;
    drop(database);

    let mut unordered = Vec::new();
    let mut fifo = Vec::new();
    let mut updates = Vec::new();
    let mut sizes = Vec::new();
    for number in 1..=lab.options.rounds.unwrap_or(5) {
        let (run, size) = relay(lab, "t_cost", end, "").await?;
        tell(lab, "cost", "outbox-relay", number, &run);
        unordered.push(run);
        sizes.push(size);
        if number <= lab.rounds() {
            let (run, _) = relay(lab, "t_cost_keyed", end, "order = \"key\"\n").await?;
            tell(lab, "cost", "outbox-relay, order per key", number, &run);
            fifo.push(run);
        }
        let run = update(lab, messages, size).await?;
        lab.report.line(
            "cost",
            &json!({"contender": "lease by UPDATE", "round": number, "messages": messages, "claim": round(size.0), "settle": round(size.1),
                "backends_us": round(run.backends), "wal_bytes": round(run.wal),
                "dead_tuples": round(run.dead)}),
        );
        updates.push(run);
    }
    for template in ["t_cost", "t_cost_keyed", "t_cost_update"] {
        lab.server.drop_database(template).await?;
    }

    let of =
        |runs: &[Run], what: fn(&Run) -> f64| median(&runs.iter().map(what).collect::<Vec<_>>());
    let (claim, settle): (Vec<f64>, Vec<f64>) = sizes.into_iter().unzip();
    lab.report.row(format!(
        "\n{:<33} {:>8} {:>8} {:>6} {:>6}",
        "cost to the database (medians)", "backends", "all µs", "WAL B", "dead"
    ));
    for (name, runs) in [
        ("outbox-relay", &unordered),
        ("outbox-relay, order per key", &fifo),
        ("lease by UPDATE of each row", &updates),
    ] {
        lab.report.row(format!(
            "{name:<33} {:>8.1} {:>8.1} {:>6.0} {:>6.2}",
            of(runs, |run| run.backends),
            of(runs, |run| run.database),
            of(runs, |run| run.wal),
            of(runs, |run| run.dead)
        ));
    }
    lab.report.row(format!(
        "batches: {:.0} messages in a claim, {:.0} in a settle",
        median(&claim),
        median(&settle)
    ));
    let p4 = of(&unordered, |run| run.backends);
    lab.report.figure("p4", p4);
    lab.report.figure("p4_fifo", of(&fifo, |run| run.backends));
    lab.report
        .figure("p4_wal", of(&unordered, |run| run.wal) / 1e3);
    lab.report.figure("p4_dead", of(&unordered, |run| run.dead));
    lab.report
        .figure("p4_update", p4 / of(&updates, |run| run.backends));
    Ok(())
}

/// The relay, and how many messages its claims and settles had.
async fn relay(
    lab: &mut Lab<'_>,
    template: &str,
    end: End,
    order: &str,
) -> Result<(Run, (f64, f64)), Failure> {
    let database = lab.copy(template, "b_cost").await?;
    database
        .run(
            "WITH relay AS (
                INSERT INTO outbox.relays (name, version, config_digest, lease_time)
                VALUES ('elsewhere', '0', '', '1 day') RETURNING relay)
             INSERT INTO outbox.leases (relay, topic, lane_endpoint, endpoint, ids, keys, ready_end, waiting_end, waiting_end_seq)
             SELECT r.relay, 'bench.order', '', 'sink', array_agg(m.id ORDER BY m.id),
                    coalesce(array_agg(m.key ORDER BY m.id) FILTER (WHERE m.key IS NOT NULL), '{}'),
                    CASE WHEN count(m.key) = 0 THEN max(m.seq) END, '-infinity', 0
               FROM relay r, (SELECT id, key, seq, row_number() OVER (ORDER BY seq) / 200 AS batch
                                FROM outbox.messages ORDER BY seq LIMIT 2048) m
              GROUP BY r.relay, m.batch",
        )
        .await?;
    let endpoint = lab.endpoint("sink", "/", "bench.**");
    let start = |lab: &Lab<'_>| lab.relay(&database, "contender", &format!("{endpoint}{order}"));
    let settled = "SELECT count(*) <= 2048 FROM outbox.messages";
    let run = drain::measure(lab, &start, Some(&database), Some(settled), end).await?;
    let leases: i64 = database
        .one("SELECT last_value FROM outbox.leases_lease_seq", &[])
        .await?
        .get(0);
    let (settles, settling) = database.function("settle").await?;
    let (calls, claiming) = database.function("claim").await?;
    lab.report.line(
        "cost",
        &json!({"template": template, "claims": calls, "claim_ms": round(claiming / calls), "settles": settles,
            "settle_ms": round(settling / settles)}),
    );
    let claims = leases as f64 - (ELSEWHERE as f64 / 200.0).ceil();
    Ok((run, (run.messages / claims, run.messages / settles)))
}

/// The other way, with batches of these sizes.
async fn update(lab: &Lab<'_>, messages: u64, (claim, settle): (f64, f64)) -> Result<Run, Failure> {
    let database: Database = lab.server.copy("t_cost_update", "b_cost").await?;
    let dead = database.dead_tuples().await?;
    let client = connect(&database.url).await?;
    client.batch_execute(PLANNER).await?;
    let pid: i32 = client
        .query_one("SELECT pg_backend_pid()", &[])
        .await?
        .get(0);
    let pid = u32::try_from(pid)?;
    let me: String = client
        .query_one("SELECT gen_random_uuid()::text", &[])
        .await?
        .get(0);
    let claims = client
        .prepare_typed(CLAIM, &[Type::TEXT, Type::TEXT, Type::INT8])
        .await?;
    let settles = client
        .prepare_typed(SETTLE, &[Type::TEXT_ARRAY, Type::TEXT])
        .await?;
    let (claim, settle) = (
        claim.round().max(1.0) as i64,
        settle.round().max(1.0) as usize,
    );

    let wal = lab.server.wal().await?;
    let all = lab.server.cpu();
    let before = process::usage(pid).cpu;
    let mut held: Vec<String> = Vec::new();
    let mut done = 0;
    loop {
        // As many in flight as the relay holds: its slots, and a prefetch.
        while held.len() < 128 {
            client
                .batch_execute("BEGIN; SET LOCAL synchronous_commit = off")
                .await?;
            let rows = client
                .query(&claims, &[&me, &"bench.order", &claim])
                .await?;
            client.batch_execute("COMMIT").await?;
            if rows.is_empty() {
                break;
            }
            held.extend(rows.iter().map(|row| row.get::<_, String>(0)));
        }
        if held.is_empty() {
            break;
        }
        let batch: Vec<String> = held.drain(..settle.min(held.len())).collect();
        client.batch_execute("BEGIN").await?;
        client.execute(&settles, &[&batch, &me]).await?;
        client.batch_execute("COMMIT").await?;
        done += batch.len();
    }
    let cpu = process::usage(pid).cpu - before;
    let all = lab.server.cpu() - all;
    let wal = lab.server.wal().await? - wal;
    drop(client);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let dead = database.dead_tuples().await? - dead;
    if u64::try_from(done)? != messages {
        return Err(format!("lease by UPDATE: {done} messages instead of {messages}").into());
    }
    let messages = messages as f64;
    Ok(Run {
        backends: cpu.as_secs_f64() * 1e6 / messages,
        database: all.as_secs_f64() * 1e6 / messages,
        wal: wal / messages,
        dead: dead / messages,
        messages,
        ..Run::default()
    })
}
