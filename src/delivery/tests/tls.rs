//! Private authorities and client certificates, with real handshakes.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::delivery::{file::tests::Directory, tls::ClientCertificate};

/// An authority.
pub(super) struct Ca {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(super) struct Pair {
    cert: String,
    key: String,
}

impl Ca {
    pub(super) fn new() -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Ca { pem, issuer }
    }

    pub(super) fn issue(&self, name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        let key = key.serialize_pem();
        Pair { cert, key }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(der(&self.pem)).unwrap();
        roots
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// A receiver that answers 204 after `delay`, and says which certificate it was shown.
pub(super) struct Secure {
    pub(super) url: String,
    shown: mpsc::UnboundedReceiver<Option<CertificateDer<'static>>>,
    _tasks: JoinSet<()>,
}

impl Secure {
    pub(super) async fn start(server: &Pair, clients: Option<&Ca>, delay: Duration) -> Secure {
        install_tls();
        let builder = match clients {
            Some(ca) => {
                let verifier = WebPkiClientVerifier::builder(Arc::new(ca.roots())).build();
                ServerConfig::builder().with_client_cert_verifier(verifier.unwrap())
            }
            None => ServerConfig::builder().with_no_client_auth(),
        };
        let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes()).unwrap();
        let config = builder
            .with_single_cert(vec![der(&server.cert)], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/hook", listener.local_addr().unwrap());
        let (tx, shown) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (acceptor, tx) = (acceptor.clone(), tx.clone());
                connections.spawn(async move {
                    let Ok(mut stream) = acceptor.accept(socket).await else {
                        return;
                    };
                    let certificates = stream.get_ref().1.peer_certificates();
                    let shown = certificates.map(|all| all[0].clone().into_owned());
                    let mut bytes = Vec::new();
                    while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
                        if bytes.ends_with(b"\r\n\r\n{}") {
                            bytes.clear();
                            tx.send(shown.clone()).unwrap();
                            sleep(delay).await;
                            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                            stream.write_all(answer).await.unwrap();
                        }
                    }
                });
            }
        });
        Secure {
            url,
            shown,
            _tasks: tasks,
        }
    }
}

async fn outcome(client: &Client) -> Outcome {
    client.attempt(&delivery(Some(b"{}"))).await
}

async fn a_second() {
    sleep(Duration::from_millis(1100)).await;
}

#[tokio::test]
async fn a_private_authority_is_trusted_when_it_is_named() {
    let (ca, directory) = (Ca::new(), Directory::new());
    let server = Secure::start(&ca.issue("127.0.0.1"), None, Duration::ZERO).await;
    let mut endpoint = endpoint(&server.url);
    // The one that would be right is not the one that is named.
    let path = directory.write("ca.pem", &Ca::new().pem);
    endpoint.tls.ca_file = Some(path.clone());
    let client = Client::new(&endpoint).unwrap();
    let refused = outcome(&client).await;
    assert_eq!(refused.class, Class::Tls);
    let error = refused.error.unwrap();
    let want = format!("; trusted is what {} holds (ca_file)", path.display());
    assert!(error.contains("invalid peer certificate"), "{error}");
    assert!(error.ends_with(&want), "{error}");

    directory.write("ca.pem", &format!("{}\n{}", Ca::new().pem, ca.pem));
    a_second().await;
    let trusted = outcome(&client).await;
    assert_eq!(trusted.class, Class::Success, "{:?}", trusted.error);

    // Something else in its place changes nothing.
    directory.write("ca.pem", "nonsense");
    a_second().await;
    assert_eq!(outcome(&client).await.class, Class::Success);
}

#[tokio::test]
async fn a_client_certificate_is_shown_and_renewed() {
    let (ca, directory) = (Ca::new(), Directory::new());
    let slow = Duration::from_millis(1500);
    let mut server = Secure::start(&ca.issue("127.0.0.1"), Some(&ca), slow).await;
    let mut endpoint = endpoint(&server.url);
    endpoint.tls.ca_file = Some(directory.write("ca.pem", &ca.pem));
    let without = outcome(&Client::new(&endpoint).unwrap()).await;
    assert_eq!(without.class, Class::Tls, "{:?}", without.error);

    let first = ca.issue("first");
    endpoint.tls.client = Some(ClientCertificate {
        cert_file: directory.write("tls.crt", &first.cert),
        key_file: directory.write("tls.key", &first.key),
    });
    let client = Client::new(&endpoint).unwrap();
    let mut in_flight = JoinSet::new();
    let mut start = || {
        let client = client.clone();
        in_flight.spawn(async move { outcome(&client).await });
    };
    start();
    assert_eq!(soon(&mut server.shown).await, Some(der(&first.cert)));
    // Half of the pair is no pair; the first one is still shown.
    let second = ca.issue("second");
    directory.write("tls.crt", &second.cert);
    a_second().await;
    start();
    assert_eq!(soon(&mut server.shown).await, Some(der(&first.cert)));
    directory.write("tls.key", &second.key);
    a_second().await;
    assert_eq!(outcome(&client).await.class, Class::Success);
    assert_eq!(soon(&mut server.shown).await, Some(der(&second.cert)));
    // What was in flight while the files changed has its answer.
    for finished in in_flight.join_all().await {
        assert_eq!(finished.class, Class::Success, "{:?}", finished.error);
    }

    // A certificate that the receiver does not trust is named.
    let stranger = Ca::new().issue("stranger");
    directory.write("tls.crt", &stranger.cert);
    directory.write("tls.key", &stranger.key);
    a_second().await;
    let refused = outcome(&client).await;
    assert_eq!(refused.class, Class::Tls, "{:?}", refused.error);
    let error = refused.error.unwrap();
    assert!(error.ends_with("/tls.crt (client_cert_file)"), "{error}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (ca, directory) = (Ca::new(), Directory::new());
    let (one, two) = (ca.issue("one"), ca.issue("two"));
    let nonsense = "-----BEGIN CERTIFICATE-----\nczNjcmV0\n-----END CERTIFICATE-----\n";
    let table = [
        (
            "",
            "",
            "",
            "ca_file: {}/ca.pem: holds no certificate in PEM",
        ),
        (
            nonsense,
            "",
            "",
            "ca_file: {}/ca.pem: certificate 1 can't be used: ",
        ),
        (
            "-----BEGIN CERTIFICATE-----\n",
            "",
            "",
            "ca_file: {}/ca.pem: is not PEM: ",
        ),
        (
            &ca.pem,
            &one.key,
            &one.key,
            "client_cert_file: {}/tls.crt: holds no certificate in PEM",
        ),
        (
            &ca.pem,
            nonsense,
            &one.key,
            "client_cert_file: {}/tls.crt: its certificate can't be used: ",
        ),
        (
            &ca.pem,
            &one.cert,
            "",
            "client_key_file: {}/tls.key: holds no private key in PEM",
        ),
        (
            &ca.pem,
            &one.cert,
            &two.key,
            "client_key_file: {}/tls.key: is not the key of the certificate in {}/tls.crt",
        ),
    ];
    for (authority, cert, key, want) in table {
        let mut endpoint = endpoint("https://127.0.0.1:9/");
        endpoint.tls.ca_file = Some(directory.write("ca.pem", authority));
        endpoint.tls.client = Some(ClientCertificate {
            cert_file: directory.write("tls.crt", cert),
            key_file: directory.write("tls.key", key),
        });
        let error = Client::new(&endpoint).err().unwrap().to_string();
        let want = want.replace("{}", &directory.0.display().to_string());
        assert!(
            error.starts_with(&format!("endpoint test: {want}")),
            "{error}"
        );
        // What has no TLS needs no file.
        endpoint.url = "http://127.0.0.1:9/".parse().unwrap();
        assert!(Client::new(&endpoint).is_ok());
    }
}
