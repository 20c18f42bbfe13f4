//! TLS of an endpoint: whom we trust, and the certificate that we show.
//!
//! Both are files that somebody renews. They are checked here before the HTTP library sees them, because its errors don't
//! say which of the three is wrong; and a handshake that fails later says which files it was made with.

use std::path::PathBuf;

use reqwest::{Certificate, ClientBuilder, Identity};
use rustls::{
    RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use super::{classify, file::Content};
use crate::message::Class;

/// What an `https` endpoint needs beyond the system's authorities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// PEM: the authorities that are trusted, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// What proves who we are.
    pub client: Option<ClientCertificate>,
}

/// A certificate of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// PEM: the certificate, and those between it and its authority.
    pub cert_file: PathBuf,
    /// PEM: its private key.
    pub key_file: PathBuf,
}

// === impl Config ===

impl Config {
    /// All its files, in the order in which [`apply`] wants them.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.ca_file.iter().cloned().collect();
        if let Some(client) = &self.client {
            files.push(client.cert_file.clone());
            files.push(client.key_file.clone());
        }
        files
    }

    /// An error with the files that a failed handshake depends on.
    pub(super) fn explain(&self, class: Class, mut text: String) -> String {
        if class == Class::Tls {
            if let Some(file) = &self.ca_file {
                text.push_str(&format!(
                    "; trusted is what {} holds (ca_file)",
                    file.display()
                ));
            }
            if let Some(client) = &self.client {
                let file = client.cert_file.display();
                text.push_str(&format!("; shown was {file} (client_cert_file)"));
            }
        }
        classify::line(&text)
    }
}

/// Adds what the files hold; the error names the one that can't be used.
pub(super) fn apply(
    config: &Config,
    mut builder: ClientBuilder,
    files: &[Content],
) -> Result<ClientBuilder, String> {
    let (authorities, client) = files.split_at(usize::from(config.ca_file.is_some()));
    if let [file] = authorities {
        let named = |error| format!("ca_file: {error}");
        builder = builder.tls_certs_only(trusted(file).map_err(named)?);
    }
    if let [cert, key] = client {
        builder = builder.identity(identity(cert, key)?);
    }
    Ok(builder)
}

fn trusted(file: &Content) -> Result<Vec<Certificate>, String> {
    let mut roots = RootCertStore::empty();
    let mut trusted = Vec::new();
    for (number, certificate) in (1..).zip(certificates(file)?) {
        let wrong = |error| file.wrong(format_args!("certificate {number} can't be used: {error}"));
        roots.add(certificate.clone()).map_err(wrong)?;
        let certificate = Certificate::from_der(&certificate);
        trusted.push(certificate.map_err(|error| file.wrong(error))?);
    }
    Ok(trusted)
}

fn identity(cert: &Content, key: &Content) -> Result<Identity, String> {
    let chain = certificates(cert).map_err(|error| format!("client_cert_file: {error}"))?;
    let wrong = |what: &str| format!("client_key_file: {}", key.wrong(what));
    let private = PrivateKeyDer::from_pem_slice(key.text.as_bytes())
        .map_err(|_| wrong("holds no private key in PEM"))?;
    // Of the key's errors only that there is one: they might say more of it than belongs into a log.
    let pair = CertifiedKey::from_der(chain, private, &ring::default_provider());
    pair.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => wrong(&format!(
            "is not the key of the certificate in {}",
            cert.path.display()
        )),
        rustls::Error::InvalidCertificate(error) => {
            let error = cert.wrong(format_args!("its certificate can't be used: {error}"));
            format!("client_cert_file: {error}")
        }
        _ => wrong("its key can't be used"),
    })?;
    let pem = format!("{}\n{}", cert.text, key.text);
    Identity::from_pem(pem.as_bytes()).map_err(|_| wrong("its key can't be used"))
}

fn certificates(file: &Content) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(file.text.as_bytes()).collect();
    let found = found.map_err(|error| file.wrong(format_args!("is not PEM: {error}")))?;
    if found.is_empty() {
        return Err(file.wrong("holds no certificate in PEM"));
    }
    Ok(found)
}
