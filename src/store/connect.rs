//! How a connection is made, and what went wrong with one, in words.
//!
//! `sslmode` means what it means to libpq: `disable`; `prefer` (the default) and `require` encrypt without a look at the
//! certificate; `verify-ca` and `verify-full` check it and the host name, against `ca_file` or the system's authorities.

use std::{error::Error as _, path::Path, sync::Arc, time::Duration};

use deadpool_postgres::PoolError;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Config, Error};

/// Reads the URL and prepares TLS.
pub(super) fn parse(config: &Config) -> Result<(tokio_postgres::Config, MakeRustlsConnect), Error> {
    let (options, verify) = options(&config.url)?;
    Ok((options, tls(verify, config.ca_file.as_deref())?))
}

/// Reads the URL: how to connect, and whether to check the server's certificate.
pub(super) fn options(url: &str) -> Result<(tokio_postgres::Config, bool), Error> {
    let (url, verify) = split_verify(url);
    // The parser's text names the parameter that is wrong; it never holds a value that may be the password.
    let mut postgres: tokio_postgres::Config = url
        .parse()
        .map_err(|error| Error::Config(explain(&error)))?;
    if postgres.get_application_name().is_none() {
        postgres.application_name("outbox-relay");
    }
    if postgres.get_connect_timeout().is_none() {
        postgres.connect_timeout(Duration::from_secs(10));
    }
    // A peer that vanished is noticed by the kernel, with statements under way or not.
    postgres.keepalives_idle(Duration::from_secs(10));
    postgres.keepalives_interval(Duration::from_secs(5));
    postgres.keepalives_retries(3);
    if postgres.get_tcp_user_timeout().is_none() {
        postgres.tcp_user_timeout(Duration::from_secs(30));
    }
    Ok((postgres, verify))
}

/// The client library does not know `verify-ca` and `verify-full`: they become `require`, and a check of ours.
fn split_verify(url: &str) -> (String, bool) {
    for mode in ["verify-full", "verify-ca"] {
        let wanted = format!("sslmode={mode}");
        if url.contains(&wanted) {
            return (url.replace(&wanted, "sslmode=require"), true);
        }
    }
    (url.to_owned(), false)
}

fn tls(verify: bool, ca_file: Option<&Path>) -> Result<MakeRustlsConnect, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Config(error.to_string()))?;
    let client = if verify {
        builder
            .with_root_certificates(roots(ca_file)?)
            .with_no_client_auth()
    } else {
        let unverified = Arc::new(Unverified(provider));
        builder
            .dangerous()
            .with_custom_certificate_verifier(unverified)
            .with_no_client_auth()
    };
    Ok(MakeRustlsConnect::new(client))
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca_file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let problem = |error: String| Error::Config(format!("ca_file {}: {error}", path.display()));
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| problem(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| problem(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| problem(error.to_string()))?;
    }
    if roots.is_empty() {
        Err(problem("holds no certificate".into()))
    } else {
        Ok(roots)
    }
}

/// What libpq does under `prefer` and `require`: encryption against those who listen, not against those who pretend.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The whole story of a database error on one line: the server's message, detail, hint and SQLSTATE, or the chain of causes.
pub(super) fn explain(error: &tokio_postgres::Error) -> String {
    if let Some(server) = error.as_db_error() {
        let mut text = format!("{} (SQLSTATE {})", server.message(), server.code().code());
        for more in [server.detail(), server.hint()].into_iter().flatten() {
            text.push_str("; ");
            text.push_str(more);
        }
        return text.replace('\n', " ");
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.replace('\n', " ")
}

/// The same for what the pool says.
pub(super) fn explain_pool(error: &PoolError) -> String {
    match error {
        PoolError::Backend(error) => explain(error),
        PoolError::Timeout(_)
        | PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        Config {
            url: url.into(),
            url_file: None,
            ca_file: None,
            guard: None,
        }
    }

    #[test]
    fn the_modes_of_libpq_are_understood() {
        for mode in ["disable", "prefer", "require", "verify-ca", "verify-full"] {
            let url = format!("postgres://u:p@localhost/db?sslmode={mode}");
            assert!(parse(&config(&url)).is_ok(), "{mode}");
        }
    }

    #[test]
    fn a_broken_url_is_named_without_its_password() {
        let error = parse(&config("postgres://u:hunter2@localhost/db?nonsense=1"))
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("nonsense") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
