//! The peer `outbox-pattern-processor`: as it comes, and tuned.
//!
//! One of its processors sends one request after another. Its own way to more is to run several of them; with more rows
//! in each of their batches, deletion at once and no cleaner that is the tuned one.
//!
//! `bench-outbox-pattern load DATABASE-URL COUNT SINK-URL` makes the tables and inserts;
//! `bench-outbox-pattern run DATABASE-URL PROCESSORS LIMIT` works until it is killed, a LIMIT of 0 is the default.
use std::{collections::HashMap, env, error::Error};

use outbox_pattern_processor::{
    http_destination::HttpDestination, outbox::Outbox, outbox_destination::OutboxDestination,
    outbox_processor::OutboxProcessor, outbox_repository::OutboxRepository,
    outbox_resources::OutboxProcessorResources,
};
use sqlx::{Executor as _, postgres::PgPoolOptions};
use uuid::Uuid;

/// The tables and indexes that its documentation requires.
const TABLES: &str = "
create table outbox (
    idempotent_key uuid not null primary key,
    partition_key  uuid not null,
    destinations   jsonb not null,
    headers        jsonb,
    payload        text not null,
    attempts       int not null default 0,
    created_at     timestamptz not null default now(),
    process_after  timestamptz not null default now(),
    processed_at   timestamptz
);
create table outbox_lock (
    partition_key    uuid not null,
    lock_id          uuid not null,
    processed_at     timestamptz,
    processing_until timestamptz not null default now() + interval '30 seconds'
);
create table outbox_cleaner_schedule (
    cron_expression varchar(50) not null,
    last_execution  timestamptz not null default now()
);
create index on outbox (partition_key);
create index on outbox (process_after);
create index on outbox (processed_at);
create index on outbox (partition_key, process_after);
create index on outbox (partition_key, process_after, attempts) where processed_at is null;
create unique index on outbox_lock (partition_key) where processed_at is null;
create index on outbox_lock (lock_id);
create index on outbox_lock (processing_until) where processed_at is null;
create index on outbox_lock (processed_at);
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["load", database, count, sink] => load(database, count.parse()?, sink).await,
        ["run", database, processors, limit] => {
            run(database, processors.parse()?, limit.parse()?).await
        }
        _ => Err("load DATABASE-URL COUNT SINK-URL | run DATABASE-URL PROCESSORS LIMIT".into()),
    }
}

async fn load(database: &str, count: u64, sink: &str) -> Result<(), Box<dyn Error>> {
    let pool = PgPoolOptions::new().connect(database).await?;
    let mut connection = pool.acquire().await?;
    connection.execute(TABLES).await?;
    let destination = OutboxDestination::HttpDestination(HttpDestination {
        url: sink.to_owned(),
        headers: Some(HashMap::from([(
            "Content-Type".to_owned(),
            "application/json".to_owned(),
        )])),
        method: None,
    });
    for start in (0..count).step_by(1000) {
        let rows = (start..count.min(start + 1000))
            .map(|n| {
                let bare = format!(r#"{{"n":{n},"pad":""}}"#);
                let pad = "x".repeat(350 - bare.len());
                let payload = format!(r#"{{"n":{n},"pad":"{pad}"}}"#);
                Outbox::new(Uuid::new_v4(), vec![destination.clone()], None, &payload)
            })
            .collect();
        OutboxRepository::insert_all(&mut connection, rows).await?;
    }
    Ok(())
}

async fn run(database: &str, processors: usize, limit: u32) -> Result<(), Box<dyn Error>> {
    let pool = PgPoolOptions::new()
        .max_connections(32)
        .connect(database)
        .await?;
    let mut resources = OutboxProcessorResources::new(pool, None, None);
    if limit > 0 {
        resources = resources
            .with_outbox_query_limit(limit)
            .with_outbox_execution_interval_in_seconds(1)
            .with_delete_after_process_successfully(true);
    }
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..processors {
        let processor = OutboxProcessor::new(resources.clone());
        running.spawn(async move {
            processor
                .init_process()
                .await
                .map_err(|error| error.to_string())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}
