//! The ceiling: the relay's HTTP client in a loop, with nothing before it and nothing after it.
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::task::JoinSet;

use crate::{Failure, contender::payload};

#[tokio::main]
pub(crate) async fn run(url: &str, count: u64, concurrency: usize) -> Result<(), Failure> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "there is a TLS provider already")?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..concurrency {
        let (client, url, next) = (client.clone(), url.to_owned(), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok::<(), reqwest::Error>(());
                }
                let answer = client
                    .post(&url)
                    .header("content-type", "application/json")
                    .header("idempotency-key", n.to_string())
                    .body(payload(n))
                    .send()
                    .await?
                    .error_for_status()?;
                answer.bytes().await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
