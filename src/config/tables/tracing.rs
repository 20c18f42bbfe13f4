//! `[tracing]`: where spans go.

use reqwest::Url;

use super::{MILLISECOND, MINUTE, SECOND, auth, format, guard, proxy, tls};
use crate::{
    config::reader::Section,
    delivery::{self, format::Shape, idempotency},
    maintenance::spans::Config,
};

/// The name under which its log lines stand.
const NAME: &str = "tracing";

/// Bodies with more bytes are compressed, which every collector can read.
const GZIP_ABOVE: usize = 1024;

/// `None` without the table.
pub(crate) fn tracing(section: &Section<'_>) -> Option<Config> {
    let url = section.optional("otlp_url", r#"a URL such as "http://collector:4318""#, url);
    let whole = section.given();
    let (headers, header_files) = format::headers(section, &Shape::Raw);
    let timeout = section.duration("timeout", 10 * SECOND, MILLISECOND..=MINUTE);
    let guard = guard::guard(section);
    let (tls, proxy) = (
        tls::tls(section, whole),
        proxy::proxy(section, guard.is_on()),
    );
    let auth = auth::auth(section, whole);
    let service = section.text("service_name", r#"a name such as "outbox-relay""#);
    let sample = section.real("sample", 1.0, 0.0..=1.0);
    if whole && cfg!(not(feature = "otlp")) {
        let message = "this build sends no spans: build with --features otlp";
        section.problem("otlp_url", message.into());
    }
    if whole && !section.has("otlp_url") {
        section.problem("otlp_url", "is missing: it says where spans go".into());
    }
    let endpoint = delivery::Endpoint {
        timeout,
        connect_timeout: timeout.min(3 * SECOND),
        format: delivery::format::Config {
            headers,
            header_files,
            gzip_above: Some(GZIP_ABOVE),
            ..delivery::format::Config::default()
        },
        idempotency: idempotency::Config {
            format: idempotency::Format::None,
            ..idempotency::Config::default()
        },
        trace: false,
        tls,
        proxy,
        guard,
        auth,
        ..delivery::Endpoint::new(NAME, url?)
    };
    tls::check(section, &endpoint);
    guard::check(section, &endpoint);
    proxy::check(section, &endpoint);
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
