//! A proxy between us and an endpoint.
//!
//! It stands in the configuration or nowhere: a variable of the environment must not decide where payloads go. An `https`
//! endpoint is reached through a tunnel (CONNECT) and its certificate is checked as ever, an `http` one is asked for by its
//! whole URL. The proxy resolves names, so with one there is nothing that the [guard](super::guard) could check.
//!
//! What fails on the way to the proxy, or because it wants other credentials, is filed as `proxy` and says nothing of the
//! endpoint's health. A tunnel that the proxy does not open, and a gateway's 502 or 504, count against the endpoint: mostly
//! it is what can't be reached. So does a connection through a tunnel that takes too long, as nobody knows whose fault it is.

use std::path::PathBuf;

use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::{ClientBuilder, Proxy, Url};

use super::{auth::secret, file::Content};

/// A proxy, and who we are to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where it is; `http` or `https`.
    pub url: Url,
    /// The file with `user:password`; a line break behind it doesn't count.
    pub auth_file: Option<PathBuf>,
}

/// Sends all requests through it; `files` are those of the configuration.
pub(super) fn apply(
    config: &Config,
    builder: ClientBuilder,
    files: &[Content],
) -> Result<ClientBuilder, String> {
    let mut proxy =
        Proxy::all(config.url.clone()).map_err(|_| "proxy: can't be used".to_owned())?;
    if let [file] = files {
        let named = |error| format!("proxy_auth_file: {error}");
        proxy = proxy.custom_http_auth(credentials(file).map_err(named)?);
    }
    Ok(builder.proxy(proxy))
}

fn credentials(file: &Content) -> Result<reqwest::header::HeaderValue, String> {
    let pair = file.line()?;
    if !pair.contains(':') {
        return Err(file.wrong("holds no user and password with a colon between them"));
    }
    secret(file, &format!("Basic {}", BASE64_STANDARD.encode(pair)))
}
