//! `[tracing]`: where spans go.

use reqwest::Url;

use super::apart;
use crate::{config::reader::Section, delivery::idempotency, maintenance::spans::Config};

/// The name under which its log lines stand.
const NAME: &str = "tracing";

/// Bodies with more bytes are compressed, which every collector can read.
const GZIP_ABOVE: usize = 1024;

/// `None` without the table.
pub(crate) fn tracing(section: &Section<'_>) -> Option<Config> {
    let url = section.optional("otlp_url", r#"a URL such as "http://collector:4318""#, url);
    let whole = section.given();
    let service = section.text("service_name", r#"a name such as "outbox-relay""#);
    let sample = section.real("sample", 1.0, 0.0..=1.0);
    if whole && cfg!(not(feature = "otlp")) {
        let message = "this build sends no spans: build with --features otlp";
        section.problem("otlp_url", message.into());
    }
    if whole && !section.has("otlp_url") {
        section.problem("otlp_url", "is missing: it says where spans go".into());
    }
    let mut endpoint = apart::endpoint(section, NAME, url)?;
    endpoint.format.gzip_above = Some(GZIP_ABOVE);
    endpoint.idempotency.format = idempotency::Format::None;
    Some(Config {
        endpoint,
        service: service.unwrap_or_else(|| "outbox-relay".into()),
        sample,
    })
}

/// Where nothing follows the host, the path of the standard.
fn url(text: &str) -> Result<Url, String> {
    let mut url = super::plain_url(text)?;
    if url.path() == "/" {
        url.set_path("/v1/traces");
    }
    Ok(url)
}
