//! Certificates.

use reqwest::Url;

use crate::{
    config::reader::Section,
    delivery::tls::{ClientCertificate, Config},
};

const KEYS: [&str; 3] = ["ca_file", "client_cert_file", "client_key_file"];

/// An endpoint that is `whole` must have certificate and key; `[defaults]` may hold one of them.
pub(super) fn tls(endpoint: &Section<'_>, url: Option<&Url>, whole: bool) -> Config {
    let [ca, cert, key] = KEYS;
    let ca_file = endpoint.path(ca, "/etc/ca.pem");
    let cert_file = endpoint.path(cert, "/run/secrets/tls.crt");
    let key_file = endpoint.path(key, "/run/secrets/tls.key");
    let halves = whole && cert_file.is_some() != key_file.is_some();
    endpoint.check(&[cert, key], !halves, || {
        format!("{cert} and {key} are needed together")
    });
    let plain = url.is_some_and(|url| url.scheme() == "http");
    for key in KEYS {
        if plain && endpoint.has(key) {
            let message = "means something only with an https:// URL";
            endpoint.problem(key, message.into());
        }
    }
    let pair = cert_file.zip(key_file);
    let client = pair.map(|(cert_file, key_file)| ClientCertificate {
        cert_file,
        key_file,
    });
    Config { ca_file, client }
}
