//! Tells somebody that something is wrong: in the log, at a webhook, and as messages of the outbox.
//!
//! Model: what is wrong is written down in the database, in one transaction with the notices of it, by whichever relay looks
//! (`sql/functions/watch.sql`); so replicas make one notice, and none is lost with the relay that made it. Any relay sends it: it takes the
//! notice for a little longer than a request may last, and removes it when it was accepted. So a webhook is told at least
//! once, under one key. Authority: the database's row; a relay remembers nothing.
//! Failure: a webhook that does not answer is tried again later and later, for a day. It holds up neither the looks nor any
//! delivery. Its URL may be a secret, as Slack's are: no log line has it.

use std::{fmt, time::Duration};

use bytes::Bytes;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use tokio::{
    sync::{Notify, watch},
    time,
};
use tokio_util::sync::CancellationToken;

use crate::{
    delivery::{Client, Endpoint},
    message::{Class, Delivery, Outcome},
    metrics::Metrics,
    store::{Error, Notice, Store, Told, Watch},
};

/// The first pause after a notice that could not be sent; each is twice as long as the one before ...
const PAUSE: Duration = Duration::from_secs(5);

/// ... up to this.
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// A notice that could not be sent for so long is old news.
const GIVEN_UP: Duration = Duration::from_secs(24 * 60 * 60);

/// A notice is taken for so much longer than its request may last.
const MARGIN: Duration = Duration::from_secs(5);

/// What is looked for, and who is told besides the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What is looked for.
    pub watch: Watch,
    /// Who is told.
    pub webhook: Option<Webhook>,
}

/// Whom notices are sent to.
#[derive(Clone, PartialEq)]
pub struct Webhook {
    /// How it is reached; its URL may be a secret.
    pub endpoint: Endpoint,
    /// What it reads.
    pub format: Format,
}

/// What a webhook reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The JSON object that says all of it.
    Json,
    /// A text, as Slack and those who speak its language take it.
    Slack,
}

/// Looks, and sends, until the stop; as its configuration says then.
pub async fn watch(
    store: &Store,
    configs: &mut watch::Receiver<Option<Config>>,
    metrics: &Metrics,
    stop: &CancellationToken,
    rng: &mut impl Rng,
) {
    loop {
        let config = configs.borrow_and_update().clone();
        // On the heap: a request is a large future, and most of the time there is none.
        let rounds = Box::pin(async {
            match &config {
                Some(config) => rounds(store, config, metrics, rng).await,
                None => std::future::pending().await,
            }
        });
        tokio::select! {
            () = rounds => {}
            Ok(()) = configs.changed() => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Runs until it is dropped.
async fn rounds(store: &Store, config: &Config, metrics: &Metrics, rng: &mut impl Rng) {
    let told = Notify::new();
    let mut jitter = StdRng::from_rng(rng);
    let look = async {
        loop {
            match store.watch(&config.watch).await {
                Ok(all) => {
                    for one in &all {
                        say(one);
                    }
                    if !all.is_empty() {
                        told.notify_one();
                    }
                }
                Err(error) => failed(metrics, "watch", &error),
            }
            // Between two looks nobody needs the connection.
            store.disconnect();
            // Replicas that were started together must not come together.
            time::sleep(config.watch.every.mul_f64(rng.random_range(0.9..1.1))).await;
        }
    };
    let send = async {
        let Some(webhook) = &config.webhook else {
            return;
        };
        let client = match Client::new(&webhook.endpoint) {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(%error, "alerts can't be sent to their webhook");
                return;
            }
        };
        loop {
            let wait = match webhook.send_all(&client, store, &mut jitter).await {
                Ok(wait) => wait,
                Err(error) => {
                    failed(metrics, "notice", &error);
                    None
                }
            };
            let wait = wait.map_or(config.watch.every, |wait| wait.min(config.watch.every));
            tokio::select! {
                () = told.notified() => {}
                () = time::sleep(wait) => {}
            }
        }
    };
    tokio::join!(look, send);
}

fn failed(metrics: &Metrics, call: &str, error: &Error) {
    metrics.failed(call);
    tracing::warn!(%error, call, "whether something is wrong is not known, trying again");
}

/// Tells the log.
fn say(told: &Told) {
    let Told {
        kind,
        subject,
        state,
        since,
        summary,
        command,
        ..
    } = told;
    match state.as_str() {
        "recovered" => {
            tracing::info!(
                alert = kind,
                subject,
                since,
                summary,
                "an alert has recovered"
            );
        }
        _ => tracing::warn!(
            alert = kind,
            subject,
            state,
            since,
            summary,
            command,
            "something is wrong"
        ),
    }
}

// === impl Webhook ===

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// Where notices go, without what may be secret of it.
    pub fn shown(&self) -> String {
        let origin = self.endpoint.url.origin().ascii_serialization();
        match self.format {
            Format::Json => format!("{origin} (json)"),
            Format::Slack => format!("{origin} (slack)"),
        }
    }

    /// Sends what there is to send. Returns how long to wait for what could not be sent, if anything.
    async fn send_all(
        &self,
        client: &Client,
        store: &Store,
        rng: &mut impl Rng,
    ) -> Result<Option<Duration>, Error> {
        let mut wait: Option<Duration> = None;
        while let Some(notice) = store.take_notice(self.endpoint.timeout + MARGIN).await? {
            let outcome = client.attempt(&self.delivery(&notice)).await;
            if outcome.class == Class::Success {
                store.remove_notice(notice.notice).await?;
                continue;
            }
            let given_up = notice.age >= GIVEN_UP;
            self.complain(&notice, &outcome, given_up);
            if given_up {
                store.remove_notice(notice.notice).await?;
                continue;
            }
            let delay = delay(&notice, &outcome, rng);
            store.postpone_notice(&notice, delay).await?;
            wait = Some(wait.map_or(delay, |wait| wait.min(delay)));
        }
        Ok(wait)
    }

    fn delivery(&self, notice: &Notice) -> Delivery {
        let told: Option<Told> = serde_json::from_str(&notice.content).ok();
        let body = match (self.format, &told) {
            (Format::Slack, Some(told)) => json!({ "text": text(told) }).to_string(),
            (Format::Slack | Format::Json, _) => notice.content.clone(),
        };
        Delivery {
            kind: told
                .as_ref()
                .map(|told| format!("outbox.alert.{}", told.state)),
            attempts: u32::try_from(notice.attempts - 1).unwrap_or(0),
            created_at: told.map_or_else(String::new, |told| told.since),
            ..super::post(notice.notice, "outbox.alert", Bytes::from(body))
        }
    }

    fn complain(&self, notice: &Notice, outcome: &Outcome, given_up: bool) {
        let error = outcome.error.as_deref().unwrap_or_default();
        let error = self.without_secret(error);
        let (attempt, notice) = (notice.attempts, notice.notice);
        let (outcome, status) = (outcome.class.as_str(), outcome.status);
        match given_up {
            true => {
                tracing::error!(%notice, attempt, outcome, status, error, "a notice of an alert is given up");
            }
            false => {
                tracing::warn!(%notice, attempt, outcome, status, error, "a notice of an alert was not accepted, trying again");
            }
        }
    }

    /// A redirect, or a receiver that quotes, may have the URL in it.
    fn without_secret(&self, text: &str) -> String {
        let url = &self.endpoint.url;
        let mut text = text.to_owned();
        let parts = url.path().split('/').chain(url.query());
        for part in parts.filter(|part| part.len() >= 6) {
            text = text.replace(part, "…");
        }
        text
    }
}

fn delay(notice: &Notice, outcome: &Outcome, rng: &mut impl Rng) -> Duration {
    let doublings = u32::try_from(notice.attempts - 1).unwrap_or(0).min(16);
    let pause = PAUSE.saturating_mul(1 << doublings).min(LONGEST);
    let asked = outcome.retry_after.unwrap_or_default().min(LONGEST);
    pause.mul_f64(rng.random_range(0.5..1.0)).max(asked)
}

/// In Slack's markup, where three characters must be escaped.
fn text(told: &Told) -> String {
    let plain = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    let (sign, state) = match told.state.as_str() {
        "recovered" => (":white_check_mark:", "recovered"),
        "reminder" => (":rotating_light:", "still firing"),
        _ => (":rotating_light:", "firing"),
    };
    let mut text = format!(
        "{sign} *outbox {} {state}: {}*\n{}\nsince {}",
        plain(&told.database),
        told.kind,
        plain(&told.summary),
        plain(&told.since)
    );
    if told.state != "recovered" {
        text.push_str(&format!("\n`{}`", plain(&told.command).replace('`', "'")));
    }
    text
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn slack_reads_no_markup_of_ours() {
        let mut told = Told {
            id: Uuid::nil(),
            kind: "no_route".into(),
            subject: "a<b>&c".into(),
            state: "firing".into(),
            since: "2026-01-01T00:00:00+00:00".into(),
            database: "app".into(),
            summary: "topic <!channel> & co".into(),
            command: "outbox-relay `x`".into(),
        };
        assert_eq!(
            text(&told),
            ":rotating_light: *outbox app firing: no_route*\ntopic &lt;!channel&gt; &amp; co\nsince 2026-01-01T00:00:00+00:00\n`outbox-relay 'x'`"
        );
        told.state = "recovered".into();
        assert!(!text(&told).contains("outbox-relay"));
    }

    #[test]
    fn pauses_grow_and_a_receiver_may_ask_for_longer_ones() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut outcome = Outcome {
            exchange: None,
            output: None,
            poll: None,
            class: Class::Unavailable,
            status: Some(503),
            error: None,
            response: None,
            retry_after: None,
            duration: Duration::ZERO,
        };
        let mut notice = Notice {
            notice: Uuid::nil(),
            attempts: 1,
            age: Duration::ZERO,
            content: String::new(),
        };
        for (attempts, most) in [(1, 5), (2, 10), (4, 40), (9, 600), (i32::MAX, 600)] {
            notice.attempts = attempts;
            let most = Duration::from_secs(most);
            let delay = delay(&notice, &outcome, &mut rng);
            assert!(delay >= most / 2 && delay <= most, "{attempts}: {delay:?}");
        }
        notice.attempts = 1;
        outcome.retry_after = Some(Duration::from_secs(60));
        assert_eq!(delay(&notice, &outcome, &mut rng), Duration::from_secs(60));
    }
}
