//! What is sent to beside the deliveries: a webhook for alerts, a collector of spans.

use reqwest::Url;

use super::{MILLISECOND, MINUTE, SECOND, auth, format, guard, proxy, tls};
use crate::{
    config::reader::Section,
    delivery::{self, format::Shape},
};

/// An endpoint of its own. It inherits nothing: what `[defaults]` says, credentials among it, is meant for others. `name` is
/// the one under which its log lines stand; without a URL all else is read all the same, for what is wrong with it.
pub(super) fn endpoint(
    section: &Section<'_>,
    name: &str,
    url: Option<Url>,
) -> Option<delivery::Endpoint> {
    let whole = section.given();
    let (headers, header_files) = format::headers(section, &Shape::Raw);
    let timeout = section.duration("timeout", 10 * SECOND, MILLISECOND..=MINUTE);
    let guard = guard::guard(section);
    let endpoint = delivery::Endpoint {
        timeout,
        connect_timeout: timeout.min(3 * SECOND),
        format: delivery::format::Config {
            headers,
            header_files,
            ..delivery::format::Config::default()
        },
        tls: tls::tls(section, whole),
        proxy: proxy::proxy(section, guard.is_on()),
        guard,
        auth: auth::auth(section, whole),
        trace: false,
        ..delivery::Endpoint::new(name, url?)
    };
    tls::check(section, &endpoint);
    guard::check(section, &endpoint);
    proxy::check(section, &endpoint);
    Some(endpoint)
}
