//! Several relays at one endpoint, and several writers with a doorbell between them and the relay.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    Failure,
    contender::payload,
    database::{Database, connect},
    lab::Lab,
    process::Process,
    report::{median, round},
};

/// p12.
pub(crate) async fn relays(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let messages: u64 = lab.scale(3_000, 40_000);
    lab.template("t_relays", messages, 0).await?;
    let counts = [1_usize, 2, 4, 8];
    let mut rates: [Vec<f64>; 4] = Default::default();
    let mut duplicates = 0.0;
    for number in 1..=lab.rounds() {
        for (relays, rates) in counts.iter().zip(&mut rates) {
            let database = lab.copy("t_relays", "b_relays").await?;
            lab.sink.reset(messages).await?;
            let mut running: Vec<Process> = Vec::new();
            for at in 0..*relays {
                running.push(lab.simple_relay(&database, &format!("relay-{at}"), "/")?);
            }
            let all = messages as f64;
            // By then all of them have started.
            let begun = lab.until_seen(all / 10.0, Duration::from_secs(20)).await?;
            let seen = lab.until_seen(all, Duration::from_secs(60)).await?;
            let deadline = Instant::now() + Duration::from_secs(5);
            while !database
                .is("SELECT NOT EXISTS (SELECT FROM outbox.messages)")
                .await?
                && Instant::now() < deadline
            {
                sleep(Duration::from_millis(20)).await;
            }
            running.iter().for_each(Process::ask);
            drop(running);
            let rate = (seen.unique - begun.unique) / (seen.last - begun.now);
            let twice = lab.sink.seen().await?.duplicates;
            lab.report.line("relays", &json!({"relays": relays, "round": number, "rate": round(rate), "duplicates": twice}));
            rates.push(rate);
            duplicates += twice;
        }
    }
    let one = median(&rates[0]);
    let ratios: Vec<f64> = rates[1..].iter().map(|rates| median(rates) / one).collect();
    let [two, four, eight] = ratios[..] else {
        return Err("three counts".into());
    };
    lab.report.row(format!(
        "\nrelays at one endpoint: 2 → {two:.2}, 4 → {four:.2}, 8 → {eight:.2} of one's {one:.0}/s"
    ));
    lab.report.figure("p12", two.min(four).min(eight));
    lab.report.figure("p12_duplicates", duplicates);
    lab.server.drop_database("t_relays").await
}

/// p6. Nothing where the schema has no doorbell.
pub(crate) async fn doorbell(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let database = lab.outbox("b_doorbell").await?;
    let sql = "SELECT quote_ident(t.tgname) FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                WHERE t.tgrelid = 'outbox.messages'::regclass AND NOT t.tgisinternal AND p.proname = 'ring'";
    let Some(row) = database.client.query_opt(sql, &[]).await? else {
        lab.report
            .note("p6 was not measured: outbox.messages has no doorbell");
        return Ok(());
    };
    let trigger: String = row.get(0);
    for (figure, open) in [
        ("p6", Duration::ZERO),
        ("p6_open", Duration::from_millis(20)),
    ] {
        let mut lowest = f64::INFINITY;
        for writers in [1, 8, 32] {
            let mut rates = [Vec::new(), Vec::new()];
            for number in 1..=lab.rounds() {
                for (rates, word) in rates.iter_mut().zip(["DISABLE", "ENABLE"]) {
                    // Rows of the last turn are none of this turn's work.
                    database
                        .run("TRUNCATE outbox.messages, outbox.delivered, outbox.attempts")
                        .await?;
                    database
                        .run(&format!(
                            "ALTER TABLE outbox.messages {word} TRIGGER {trigger}"
                        ))
                        .await?;
                    lab.sink.reset(0).await?;
                    let relay = lab.simple_relay(&database, "doorbell", "/")?;
                    sleep(Duration::from_millis(300)).await;
                    let rate = inserts(
                        &database,
                        writers,
                        open,
                        lab.scale(Duration::from_millis(400), Duration::from_secs(3)),
                    )
                    .await?;
                    relay.stop();
                    lab.report.line("doorbell", &json!({"writers": writers, "open_ms": open.as_millis(), "trigger": word, "round": number, "rate": round(rate)}));
                    rates.push(rate);
                }
            }
            let ratio = median(&rates[1]) / median(&rates[0]);
            lab.report.row(format!(
                "doorbell, {writers} writers, open {} ms: {ratio:.2} of the rate without",
                open.as_millis()
            ));
            lowest = lowest.min(ratio);
        }
        lab.report.figure(figure, lowest);
    }
    lab.server.drop_database("b_doorbell").await
}

/// Inserts in a second, by so many writers that wait for nothing else.
async fn inserts(
    database: &Database,
    writers: u64,
    open: Duration,
    duration: Duration,
) -> Result<f64, Failure> {
    let (stop, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut tasks = JoinSet::new();
    for _ in 0..writers {
        let client = connect(&database.url).await?;
        let insert = client.prepare("INSERT INTO outbox.messages (topic, payload) VALUES ('bench.order', $1::text::json)").await?;
        let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
        tasks.spawn(async move {
            let payload = payload(0);
            while !stop.load(Ordering::Relaxed) {
                if open.is_zero() {
                    client.execute(&insert, &[&payload]).await?;
                } else {
                    client.batch_execute("BEGIN").await?;
                    client.execute(&insert, &[&payload]).await?;
                    sleep(open).await;
                    client.batch_execute("COMMIT").await?;
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), tokio_postgres::Error>(())
        });
    }
    let started = Instant::now();
    sleep(duration).await;
    let rate = count.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(rate)
}
