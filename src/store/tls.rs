//! TLS to the database: whom we trust, and the certificate that we show.
//!
//! The files are read again for each new connection, for they are renewed while a relay runs. One that can't be used then is said
//! once and changes nothing: what it held before stays in use. At the start it is an error.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Error;

/// What is checked of a server, and what it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    pub(super) check: Check,
    pub(super) authorities: Authorities,
    /// Certificate and private key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
    /// TLS from the first byte, where the server wants to hear that it is for PostgreSQL.
    pub(super) direct: bool,
}

/// What is checked of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Nothing,
    /// That it comes from an authority, and its dates.
    Chain,
    /// Also that it is for the host's name.
    Name,
}

/// Where certificates may come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Authorities {
    System,
    File(PathBuf),
}

/// TLS with what the files hold now.
pub(super) struct Tls {
    trust: Trust,
    made: Mutex<Made>,
}

struct Made {
    connect: MakeRustlsConnect,
    /// What is wrong with the files as they are now, which has been said.
    failure: Option<String>,
}

// === impl Tls ===

impl Tls {
    pub(super) fn new(trust: &Trust) -> Result<Tls, Error> {
        let connect = make(trust).map_err(Error::Config)?;
        Ok(Tls {
            trust: trust.clone(),
            made: Mutex::new(Made {
                connect,
                failure: None,
            }),
        })
    }

    /// For a new connection.
    pub(super) fn current(&self) -> MakeRustlsConnect {
        // A panic while it is locked leaves an older value, which is as good.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if self.trust.has_files() {
            match make(&self.trust) {
                Ok(connect) => {
                    made.connect = connect;
                    made.failure = None;
                }
                Err(error) => {
                    if made.failure.as_ref() != Some(&error) {
                        tracing::warn!(
                            error,
                            "a file for TLS to the database can't be used: what it held before stays in use"
                        );
                        made.failure = Some(error);
                    }
                }
            }
        }
        made.connect.clone()
    }

    /// What a failed handshake depends on.
    pub(super) fn explain(&self) -> String {
        let mut text = match (&self.trust.authorities, self.trust.check) {
            (Authorities::File(file), Check::Chain | Check::Name) => {
                format!("; trusted is what {} holds", file.display())
            }
            (Authorities::System, _) | (_, Check::Nothing) => String::new(),
        };
        if let Some((cert, _)) = &self.trust.client {
            text.push_str(&format!("; shown was {}", cert.display()));
        }
        text
    }
}

impl Trust {
    fn has_files(&self) -> bool {
        self.authorities != Authorities::System || self.client.is_some()
    }
}

/// The error names the file.
fn make(trust: &Trust) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let chain = match trust.check {
        Check::Nothing => None,
        Check::Chain | Check::Name => Some(chain(trust, &provider)?),
    };
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { provider, chain }));
    let mut client = match &trust.client {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = certificates(cert, "sslcert")?;
            // Of the key's errors only that there is one: they might say more of it than belongs into a log.
            let wrong = |what: &str| format!("sslkey {}: {what}", key.display());
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
                rustls::pki_types::pem::Error::Io(error) => wrong(&error.to_string()),
                _ => wrong("holds no private key in PEM that is not encrypted"),
            })?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => wrong(&format!(
                        "is not the key of the certificate in {}",
                        cert.display()
                    )),
                    rustls::Error::InvalidCertificate(error) => {
                        format!("sslcert {}: {error}", cert.display())
                    }
                    _ => wrong("its key can't be used"),
                })?
        }
    };
    if trust.direct {
        client.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(client))
}

fn chain(trust: &Trust, provider: &Arc<CryptoProvider>) -> Result<Chain, String> {
    let mut roots = RootCertStore::empty();
    let mut named = Vec::new();
    match &trust.authorities {
        Authorities::System => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(
                    "this system has no certificates of authorities: install them (Debian: ca-certificates), or set ca_file"
                        .into(),
                );
            }
        }
        Authorities::File(path) => {
            named = certificates(path, "ca_file")?;
            for certificate in &named {
                roots
                    .add(certificate.clone())
                    .map_err(|error| format!("ca_file {}: {error}", path.display()))?;
            }
        }
    }
    let authorities =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| error.to_string())?;
    Ok(Chain {
        authorities,
        named,
        any_name: trust.check == Check::Chain,
    })
}

fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: String| format!("{what} {}: {error}", path.display());
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).and_then(|certificates| certificates.collect());
    let found = found.map_err(|error| wrong(error.to_string()))?;
    match found.is_empty() {
        true => Err(wrong("holds no certificate in PEM".into())),
        false => Ok(found),
    }
}

/// Which servers are trusted, as libpq has it.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// None under `prefer` and `require`: encryption against those who listen, not against those who pretend.
    chain: Option<Chain>,
}

/// The authorities, and two things that libpq takes and rustls does not.
#[derive(Debug)]
struct Chain {
    authorities: Arc<WebPkiServerVerifier>,
    /// What was named as an authority: a server may show it as its own, as PostgreSQL's manual makes one for a start.
    named: Vec<CertificateDer<'static>>,
    /// Under `verify-ca` a certificate must come from the authority, for whatever name.
    any_name: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext, Other};
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            chain
                .authorities
                .verify_server_cert(certificate, intermediates, name, ocsp, now);
        match verified {
            // The name is what is looked at last: all else has passed.
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) if chain.any_name => Ok(ServerCertVerified::assertion()),
            // Its dates are looked at before this.
            Err(rustls::Error::InvalidCertificate(Other(error)))
                if is_authority(&error) && chain.named.iter().any(|named| named == certificate) =>
            {
                if !chain.any_name {
                    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Whether a certificate was refused because it is that of an authority.
fn is_authority(error: &OtherError) -> bool {
    let error = error.0.downcast_ref::<webpki::Error>();
    matches!(error, Some(webpki::Error::CaUsedAsEndEntity))
}
