//! Certificates.

use crate::{
    config::reader::Section,
    delivery::{
        Endpoint,
        tls::{ClientCertificate, Config},
    },
};

const KEYS: [&str; 3] = ["ca_file", "client_cert_file", "client_key_file"];

/// An endpoint that is `whole` must have certificate and key; `[defaults]` may hold one of them.
pub(super) fn tls(endpoint: &Section<'_>, whole: bool) -> Config {
    let [ca, cert, key] = KEYS;
    let ca_file = endpoint.path(ca, "/etc/ca.pem");
    let cert_file = endpoint.path(cert, "/run/secrets/tls.crt");
    let key_file = endpoint.path(key, "/run/secrets/tls.key");
    let halves = whole && cert_file.is_some() != key_file.is_some();
    endpoint.check(&[cert, key], !halves, || {
        format!("{cert} and {key} are needed together")
    });
    let pair = cert_file.zip(key_file);
    let client = pair.map(|(cert_file, key_file)| ClientCertificate {
        cert_file,
        key_file,
    });
    Config { ca_file, client }
}

/// Certificates for an endpoint that never meets TLS.
pub(super) fn check(section: &Section<'_>, endpoint: &Endpoint) {
    for key in KEYS {
        if !endpoint.is_secure() && section.has(key) {
            let message = "means something only with an https:// URL";
            section.problem(key, message.into());
        }
    }
}
