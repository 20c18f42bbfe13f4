//! How fast a full table is emptied: the relay, its peers, and a bare loop as the ceiling.
use std::{
    collections::HashMap,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::time::sleep;

use crate::{
    Failure,
    contender::{CONCURRENCY, Contender},
    database::Database,
    lab::{Lab, Seen},
    process::{self, Process},
    report::{median, round},
};

/// One contender, once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// Messages in a second, between the first twentieth and the last of them.
    pub(crate) rate: f64,
    /// Microseconds of CPU per message, in that time: the contender's own.
    pub(crate) own: f64,
    /// ... over the whole run, until all is settled: of all processes of its database.
    pub(crate) database: f64,
    /// ... of those backends that work for it, without their start and their first plans: from the first twentieth on.
    pub(crate) backends: f64,
    /// Bytes of WAL per message.
    pub(crate) wal: f64,
    /// Dead versions of rows per message.
    pub(crate) dead: f64,
    /// Megabytes at most.
    pub(crate) memory: f64,
    pub(crate) duplicates: f64,
    pub(crate) messages: f64,
    pub(crate) in_flight: f64,
}

/// When a run is over.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) messages: u64,
    pub(crate) after: Duration,
}

struct Mark {
    seen: Seen,
    own: Duration,
}

const ALL: &[Contender] = &[
    Contender::Bare,
    Contender::Relay,
    Contender::GraphileRust,
    Contender::OutboxTuned,
    Contender::OutboxDefault,
    Contender::Graphile,
    Contender::PgBoss,
    Contender::BullMq,
];

/// p1, p2, p3.
pub(crate) async fn drain(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let end = End {
        // More than anybody but the bare loop delivers in that time: some peers fetch thousands in advance, and a run that
        // ends with them would not show what the next thousands cost.
        messages: lab.scale(16_000, 60_000),
        after: lab.scale(Duration::from_millis(800), Duration::from_secs(6)),
    };
    let mut contenders = Vec::new();
    for contender in ALL {
        match contender.prepare(lab, end.messages).await {
            Ok(()) => contenders.push(*contender),
            Err(failure) => lab
                .report
                .note(&format!("{} is left out: {failure}", contender.name())),
        }
    }
    let redis = match Redis::start(lab).await {
        Ok(redis) => Some(redis),
        Err(failure) => {
            lab.report.note(&format!("BullMQ is left out: {failure}"));
            None
        }
    };
    let mut runs: HashMap<&str, Vec<Run>> = HashMap::new();
    for round in 1..=lab.options.rounds.unwrap_or(5) {
        for contender in &contenders {
            // They are the farthest away, and the slowest to start.
            if contender.is_script() && round > lab.rounds() {
                continue;
            }
            let run = match (contender, &redis) {
                (Contender::BullMq, None) => continue,
                (Contender::BullMq, Some(redis)) => bullmq(lab, redis, end).await,
                _ => one(lab, *contender, "/", end).await,
            };
            match run {
                Ok(run) => {
                    tell(lab, "drain", contender.name(), round, &run);
                    runs.entry(contender.name()).or_default().push(run);
                }
                Err(failure) => lab
                    .report
                    .note(&format!("{} in round {round}: {failure}", contender.name())),
            }
        }
    }
    for template in contenders
        .iter()
        .filter_map(|contender| contender.template())
    {
        lab.server.drop_database(template).await?;
    }
    let of = |contender: Contender, what: fn(&Run) -> f64| {
        let runs = runs.get(contender.name()).map_or(&[][..], Vec::as_slice);
        median(&runs.iter().map(what).collect::<Vec<_>>())
    };
    let rate = |contender| of(contender, |run| run.rate);
    lab.report.row(format!(
        "{:<33} {:>7} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6}",
        "drain (medians)", "msg/s", "own µs", "db µs", "backends", "WAL B", "dead", "MB", "twice"
    ));
    for contender in ALL {
        lab.report.row(format!(
            "{:<33} {:>7.0} {:>8.1} {:>8.1} {:>8.1} {:>6.0} {:>6.2} {:>6.1} {:>6.0}",
            contender.name(),
            rate(*contender),
            of(*contender, |run| run.own),
            of(*contender, |run| run.database),
            of(*contender, |run| run.backends),
            of(*contender, |run| run.wal),
            of(*contender, |run| run.dead),
            of(*contender, |run| run.memory),
            of(*contender, |run| run.duplicates),
        ));
    }
    if lab.options.quick {
        lab.report.note("p1 to p3 come from windows of 0.8 s (--quick): rough, above all for p2, whose peers are still getting up to speed");
    }
    let relay = rate(Contender::Relay);
    lab.report.figure("p1", relay / rate(Contender::Bare));
    lab.report
        .figure("p2", relay / rate(Contender::GraphileRust));
    lab.report
        .figure("p2_outbox", relay / rate(Contender::OutboxTuned));
    lab.report
        .figure("p2_outbox_default", relay / rate(Contender::OutboxDefault));
    lab.report
        .figure("p2_graphile", relay / rate(Contender::Graphile));
    lab.report
        .figure("p2_pgboss", relay / rate(Contender::PgBoss));
    lab.report
        .figure("p2_bullmq", relay / rate(Contender::BullMq));
    let own = |contender| of(contender, |run| run.own);
    lab.report
        .figure("p3", own(Contender::Relay) / own(Contender::Bare));
    Ok(())
}

/// p13: receivers that take their time.
pub(crate) async fn slow(lab: &mut Lab<'_>) -> Result<(), Failure> {
    let end = End {
        messages: lab.scale(5_000, 40_000),
        after: lab.scale(Duration::from_millis(800), Duration::from_secs(5)),
    };
    Contender::Relay.prepare(lab, end.messages).await?;
    let mut rates = [Vec::new(), Vec::new()];
    for round in 1..=lab.rounds() {
        for (rates, contender) in rates.iter_mut().zip([Contender::Bare, Contender::Relay]) {
            let run = one(lab, contender, "/d/5", end).await?;
            tell(lab, "slow", contender.name(), round, &run);
            rates.push(run.rate);
        }
    }
    lab.report
        .figure("p13", median(&rates[1]) / median(&rates[0]));

    let end = End {
        messages: 2_000,
        after: lab.scale(Duration::from_secs(2), Duration::from_secs(6)),
    };
    let run = one(lab, Contender::Relay, "/d/500", end).await?;
    tell(lab, "slow", "outbox-relay, 500 ms", 1, &run);
    lab.report
        .figure("p13_slow", run.in_flight / CONCURRENCY as f64);
    lab.server.drop_database("t_relay").await
}

/// One run of one contender on a fresh copy of its template.
async fn one(
    lab: &mut Lab<'_>,
    contender: Contender,
    path: &str,
    end: End,
) -> Result<Run, Failure> {
    let database = match (contender, contender.template()) {
        (Contender::Relay, Some(template)) => Some(lab.copy(template, "b_run").await?),
        (_, Some(template)) => Some(lab.server.copy(template, "b_run").await?),
        (_, None) => None,
    };
    let start = |lab: &Lab<'_>| match (&database, contender) {
        (Some(database), Contender::Relay) => lab.simple_relay(database, "contender", path),
        (database, _) => {
            let url = database.as_ref().map_or("", |database| &database.url);
            contender.start(lab, url, path, end.messages)
        }
    };
    measure(lab, &start, database.as_ref(), contender.settled(), end).await
}

/// Starts somebody and watches until the end, and until all is settled.
pub(crate) async fn measure(
    lab: &mut Lab<'_>,
    start: &dyn Fn(&Lab<'_>) -> Result<Process, Failure>,
    database: Option<&Database>,
    settled: Option<&str>,
    end: End,
) -> Result<Run, Failure> {
    lab.sink.reset(end.messages).await?;
    let wal = lab.server.wal().await?;
    let dead = match database {
        Some(database) => database.dead_tuples().await?,
        None => 0.0,
    };
    let all = lab.server.cpu();
    let mut backends: HashMap<u32, Duration> = HashMap::new();
    let mut process = start(lab)?;
    let mut begun: Option<Mark> = None;
    let mut deadline = Instant::now() + Duration::from_secs(20);
    let mut next_look = Instant::now();
    let mut in_flight = Vec::new();
    let mut memory = 0.0_f64;
    let wanted = end.messages as f64;
    let (begun, ended) = loop {
        sleep(Duration::from_millis(4)).await;
        let seen = lab.sink.seen().await?;
        let own = process::usage(process.pid()).cpu;
        memory = memory.max(process::memory(process.pid()).1);
        if begun.is_none() && seen.unique >= wanted / 20.0 {
            begun = Some(Mark { seen, own });
            if let Some(database) = database {
                for pid in lab.server.backends(database).await? {
                    backends.insert(pid, process::usage(pid).cpu);
                }
            }
            deadline = Instant::now() + end.after;
        }
        if begun.is_some() {
            in_flight.push(seen.in_flight);
        }
        if let Some(database) = database
            && begun.is_some()
            && Instant::now() >= next_look
        {
            for pid in lab.server.backends(database).await? {
                backends.entry(pid).or_default();
            }
            next_look = Instant::now() + Duration::from_millis(250);
        }
        let late = Instant::now() > deadline;
        match begun {
            Some(begun) if seen.unique >= wanted || late => break (begun, Mark { seen, own }),
            Some(_) => {}
            None if late => {
                return Err(format!(
                    "only {} messages came; {}",
                    seen.unique,
                    lab.tail("contender")
                )
                .into());
            }
            None => {}
        }
        if process.ended() && seen.unique < wanted {
            return Err(format!("it ended early; {}", lab.tail("contender")).into());
        }
    };
    let whole = ended.seen.unique >= wanted;
    if whole && let (Some(database), Some(settled)) = (database, settled) {
        let deadline = Instant::now() + Duration::from_secs(3);
        while !database.is(settled).await? && Instant::now() < deadline {
            sleep(Duration::from_millis(10)).await;
        }
    }
    let mut backing = Duration::ZERO;
    for (pid, before) in &backends {
        backing += process::usage(*pid).cpu.saturating_sub(*before);
    }
    let wal = lab.server.wal().await? - wal;
    let all = lab.server.cpu() - all;
    process.stop();
    let last = lab.sink.seen().await?;
    let dead = match database {
        Some(database) => {
            // The backends' counts are there when they have ended.
            let patience = Instant::now() + Duration::from_secs(2);
            while !lab.server.backends(database).await?.is_empty() && Instant::now() < patience {
                sleep(Duration::from_millis(10)).await;
            }
            database.dead_tuples().await? - dead
        }
        None => 0.0,
    };
    let time = if whole {
        ended.seen.last
    } else {
        ended.seen.now
    } - begun.seen.now;
    let counted = ended.seen.unique - begun.seen.unique;
    let per_message = |cpu: Duration, messages: f64| cpu.as_secs_f64() * 1e6 / messages;
    let has = |value: f64| if database.is_some() { value } else { f64::NAN };
    Ok(Run {
        rate: counted / time,
        own: per_message(ended.own - begun.own, counted),
        database: has(per_message(all, ended.seen.unique)),
        backends: has(per_message(backing, counted)),
        wal: has(wal / ended.seen.unique),
        dead: has(dead / last.unique),
        memory: memory / 1e6,
        duplicates: last.duplicates,
        messages: last.unique,
        in_flight: in_flight.iter().sum::<f64>() / in_flight.len() as f64,
    })
}

/// A line for one run.
pub(crate) fn tell(lab: &Lab<'_>, section: &str, name: &str, round: usize, run: &Run) {
    let value = json!({
        "contender": name, "round": round, "messages": round_or_null(run.messages), "rate": round_or_null(run.rate),
        "own_us": round_or_null(run.own), "database_us": round_or_null(run.database),
        "backends_us": round_or_null(run.backends), "wal_bytes": round_or_null(run.wal),
        "dead_tuples": round_or_null(run.dead), "memory_mb": round_or_null(run.memory),
        "in_flight": round_or_null(run.in_flight), "duplicates": round_or_null(run.duplicates),
    });
    lab.report.line(section, &value);
}

pub(crate) fn round_or_null(value: f64) -> serde_json::Value {
    if value.is_finite() {
        round(value)
    } else {
        serde_json::Value::Null
    }
}

// === BullMQ's Redis ===

/// A private Redis, as BullMQ wants it: nothing evicted, a log that is synced once a second.
struct Redis {
    process: Process,
    url: String,
}

impl Redis {
    async fn start(lab: &Lab<'_>) -> Result<Redis, Failure> {
        if lab.options.node.is_none() {
            return Err("the npm peers are not installed".into());
        }
        // A port that nobody has just now; whoever takes it in between makes the start fail, and that is said.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ]);
        command.args([
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--maxmemory-policy",
            "noeviction",
        ]);
        command.arg("--dir").arg(lab.dir.path());
        let process = Process::start("redis-server", &command, &lab.log("redis"))?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > deadline {
                return Err("Redis does not start".into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Redis {
            process,
            url: format!("redis://127.0.0.1:{port}"),
        })
    }
}

async fn bullmq(lab: &mut Lab<'_>, redis: &Redis, end: End) -> Result<Run, Failure> {
    // Loaded in every round, and it fetches nothing in advance.
    let end = End {
        messages: lab.scale(4_000, 30_000),
        ..end
    };
    let mut load = Contender::BullMq.script(
        lab,
        "bullmq.mjs",
        &["load", &redis.url, &end.messages.to_string()],
    )?;
    process::run("BullMQ", &mut load)?;
    let before = process::usage(redis.process.pid()).cpu;
    let start = |lab: &Lab<'_>| Contender::BullMq.start(lab, &redis.url, "/", end.messages);
    let mut run = measure(lab, &start, None, None, end).await?;
    let cpu = process::usage(redis.process.pid()).cpu - before;
    run.database = cpu.as_secs_f64() * 1e6 / run.messages;
    Ok(run)
}
