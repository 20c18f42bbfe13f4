//! A proxy: `proxy = "http://proxy:3128"`, or `"none"` where one is inherited.

use reqwest::Url;

use crate::{
    config::reader::Section,
    delivery::{Endpoint, proxy::Config},
};

const NONE: &str = "none";

pub(super) fn proxy(endpoint: &Section<'_>, guarded: bool) -> Option<Config> {
    let expected = r#"a URL such as "http://proxy:3128", or "none""#;
    let text = endpoint.optional("proxy", expected, |text| match text {
        NONE => Ok(NONE.to_owned()),
        text => url(text).map(|url| url.to_string()),
    });
    let auth_file = endpoint.path("proxy_auth_file", "/run/secrets/proxy");
    let url = text.and_then(|text| url(&text).ok());
    endpoint.check(&["proxy"], url.is_none() || !guarded, || {
        "can't stand beside a guard that is on: the proxy resolves names and connects, so nobody checks the addresses; \
         set guard = \"off\" and let the proxy refuse, or go without a proxy"
            .into()
    });
    if url.is_none() && endpoint.has("proxy_auth_file") {
        let message = "means something only with proxy";
        endpoint.problem("proxy_auth_file", message.into());
    }
    url.map(|url| Config { url, auth_file })
}

/// What can't be reached through a proxy.
pub(super) fn check(section: &Section<'_>, endpoint: &Endpoint) {
    // The HTTP library takes the brackets for a part of the name that the certificate should have.
    let bracketed = endpoint
        .url
        .host_str()
        .is_some_and(|host| host.starts_with('['));
    if endpoint.proxy.is_some() && endpoint.url.scheme() == "https" && bracketed {
        let message = "an IPv6 address can't be reached over TLS through a proxy: use a name";
        section.problem("url", message.into());
    }
}

fn url(text: &str) -> Result<Url, String> {
    let url = super::plain_url(text)?;
    if url.path() != "/" || url.query().is_some() {
        return Err("must have nothing behind its host and port".into());
    }
    Ok(url)
}
