//! PgQ, the queue of the logs: what reading a log costs the database, as a reference. Its events go nowhere.
//!
//! It knows no retries by itself here, no order per key, no history and no leases, and a consumer reads all or nothing of a
//! batch: a lower bound, not a rival.
use serde_json::json;

use crate::{
    Failure,
    database::connect,
    lab::Lab,
    process,
    report::{median, round},
};

/// Events between two ticks, which make a batch.
const BATCH: u64 = 200;

pub(crate) async fn pgq(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let events = lab.scale(4_000, 40_000);
    let (mut cpus, mut wals) = (Vec::new(), Vec::new());
    for number in 1..=lab.rounds() {
        let (cpu, wal) = match once(lab, events).await {
            Ok(found) => found,
            Err(failure) => {
                lab.report.note(&format!("PgQ is left out: {failure}"));
                return Ok(());
            }
        };
        let line = json!({"contender": "PgQ", "round": number, "messages": events, "backends_us": round(cpu), "wal_bytes": round(wal)});
        lab.report.line("cost", &line);
        cpus.push(cpu);
        wals.push(wal);
    }
    lab.report.figure("pgq", median(&cpus));
    lab.report.figure("pgq_wal", median(&wals) / 1e3);
    lab.report.row(format!(
        "{:<33} {:>8.1} {:>8} {:>6.0}",
        "PgQ, consumer and ticker",
        median(&cpus),
        "",
        median(&wals)
    ));
    Ok(())
}

/// Microseconds of CPU and bytes of WAL per event, of consumer and ticker together.
async fn once(lab: &Lab<'_>, events: u64) -> Result<(f64, f64), Failure> {
    let database = lab.server.create("b_pgq").await?;
    database
        .run(
            "CREATE EXTENSION pgq;
             SELECT pgq.create_queue('bench');
             SELECT pgq.set_queue_config('bench', 'ticker_max_count', '1');
             SELECT pgq.set_queue_config('bench', 'ticker_max_lag', '0');
             SELECT pgq.register_consumer('bench', 'bench');
             SELECT pgq.ticker('bench');",
        )
        .await?;
    let client = connect(&database.url).await?;
    let pid = u32::try_from(
        client
            .query_one("SELECT pg_backend_pid()", &[])
            .await?
            .get::<_, i32>(0),
    )?;
    let insert = "SELECT count(pgq.insert_event('bench', 'order', '{\"n\":' || g || ',\"pad\":\"' || repeat('x', 335 - length(g::text)) || '\"}'))
                    FROM generate_series($1::bigint, $2::bigint) g";
    let before = process::usage(pid).cpu;
    let mut wal = 0.0;
    for start in (0..events).step_by(usize::try_from(BATCH)?) {
        let end = i64::try_from(events.min(start + BATCH) - 1)?;
        database
            .client
            .execute(insert, &[&i64::try_from(start)?, &end])
            .await?;
        let at = lab.server.wal().await?;
        client.execute("SELECT pgq.ticker('bench')", &[]).await?;
        wal += lab.server.wal().await? - at;
    }
    let at = lab.server.wal().await?;
    let mut read = 0;
    while let Some(batch) = client
        .query_one("SELECT pgq.next_batch('bench', 'bench')", &[])
        .await?
        .get::<_, Option<i64>>(0)
    {
        read += client
            .query("SELECT * FROM pgq.get_batch_events($1)", &[&batch])
            .await?
            .len();
        client
            .execute("SELECT pgq.finish_batch($1)", &[&batch])
            .await?;
    }
    wal += lab.server.wal().await? - at;
    let cpu = process::usage(pid).cpu - before;
    if u64::try_from(read)? != events {
        return Err(format!("{read} events instead of {events}").into());
    }
    let events = events as f64;
    Ok((cpu.as_secs_f64() * 1e6 / events, wal / events))
}
