//! The peer `graphile_worker` (the Rust crate), set as its documentation advises for throughput: a local queue, and
//! completions in batches. Its handler posts the message, as the relay does.
//!
//! `bench-graphile load DATABASE-URL COUNT` makes the schema and adds the jobs;
//! `bench-graphile run DATABASE-URL SINK-URL CONCURRENCY` works until it is killed.
use std::{env, error::Error, time::Duration};

use graphile_worker::{
    Database, IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler,
    WorkerContext, WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;

#[derive(Deserialize, Serialize)]
struct Message {
    n: u64,
    pad: String,
}

#[derive(Clone, Debug)]
struct Sink {
    client: reqwest::Client,
    url: String,
}

impl TaskHandler for Message {
    const IDENTIFIER: &'static str = "deliver";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let sink = context.get_ext::<Sink>().ok_or("no sink")?;
        let body = serde_json::to_vec(&self).map_err(|error| error.to_string())?;
        let answer = sink
            .client
            .post(&sink.url)
            .header("content-type", "application/json")
            .header("idempotency-key", context.job().id().to_string())
            .body(body)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(answer.status().to_string());
        }
        answer.bytes().await.map_err(|error| error.to_string())?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["load", database, count] => load(database, count.parse()?).await,
        ["run", database, sink, concurrency] => run(database, sink, concurrency.parse()?).await,
        _ => Err("load DATABASE-URL COUNT | run DATABASE-URL SINK-URL CONCURRENCY".into()),
    }
}

async fn load(database: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let pool = PgPoolOptions::new().connect(database).await?;
    let utils = WorkerUtils::new(Database::from(pool), "graphile_worker");
    utils.migrate().await?;
    for start in (0..count).step_by(1000) {
        let jobs: Vec<RawJobSpec> = (start..count.min(start + 1000))
            .map(|n| {
                // The whole message has 350 bytes.
                let pad = "x".repeat(350 - format!(r#"{{"n":{n},"pad":""}}"#).len());
                RawJobSpec {
                    identifier: Message::IDENTIFIER.to_owned(),
                    payload: serde_json::json!({ "n": n, "pad": pad }),
                    spec: JobSpec::default(),
                }
            })
            .collect();
        utils.add_raw_jobs(&jobs).await?;
    }
    Ok(())
}

async fn run(database: &str, sink: &str, concurrency: usize) -> Result<(), Box<dyn Error>> {
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .connect(database)
        .await?;
    // The driver's features decide for this workspace: reqwest comes without a provider of its own.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "there is a TLS provider already")?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let worker = WorkerOptions::default()
        .pg_pool(pool)
        .concurrency(concurrency)
        .poll_interval(Duration::from_millis(100))
        .local_queue(LocalQueueConfig::default().with_size(500))
        .complete_job_batch_delay(Duration::from_millis(5))
        .fail_job_batch_delay(Duration::from_millis(5))
        .add_extension(Sink {
            client,
            url: sink.to_owned(),
        })
        .define_job::<Message>()
        .init()
        .await?;
    worker.run().await?;
    Ok(())
}
