//! Through a small but real proxy, for tunnels and for plain requests.

use std::net::SocketAddr;

use reqwest::Url;
use tokio::io::copy_bidirectional;

use super::{
    super::proxy::Config,
    tls::{Ca, Secure},
    *,
};
use crate::{delivery::file::tests::Directory, limit::Health};

/// "user:s3cret".
const CREDENTIALS: &str = "proxy-authorization: basic dxnlcjpzm2nyzxq=";

/// A proxy that finds `to` behind every name, or says `status` where there is nothing. Hands over the heads that it read.
struct Between {
    url: String,
    heads: mpsc::UnboundedReceiver<String>,
    server: Server,
}

impl Between {
    /// With `open` anybody may use it, otherwise those with [`CREDENTIALS`].
    async fn start(to: Option<SocketAddr>, open: bool) -> Between {
        let (tx, heads) = mpsc::unbounded_channel();
        let server = Server::start(move |mut peer| {
            let tx = tx.clone();
            async move {
                let mut bytes = Vec::new();
                while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
                    if peer.0.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let head = String::from_utf8(bytes.clone()).unwrap().to_lowercase();
                tx.send(head.clone()).unwrap();
                if !open && !head.contains(CREDENTIALS) {
                    let answer =
                        b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
                    return peer.send(answer).await;
                }
                let upstream = match to {
                    Some(to) => TcpStream::connect(to).await,
                    None => Err(std::io::Error::other("nowhere")),
                };
                let Ok(mut upstream) = upstream else {
                    let answer = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
                    return peer.send(answer).await;
                };
                if head.starts_with("connect ") {
                    peer.send(b"HTTP/1.1 200 OK\r\n\r\n").await;
                } else {
                    upstream.write_all(&bytes).await.unwrap();
                }
                copy_bidirectional(&mut peer.0, &mut upstream).await.ok();
            }
        })
        .await;
        Between {
            url: server.url.replace("/hook", ""),
            heads,
            server,
        }
    }

    async fn head(&mut self) -> String {
        soon(&mut self.heads).await
    }
}

fn through(url: &str, proxy: &str) -> Endpoint {
    let url_of_proxy = proxy.parse().unwrap();
    Endpoint {
        proxy: Some(Config {
            url: url_of_proxy,
            auth_file: None,
        }),
        ..endpoint(url)
    }
}

async fn send(endpoint: &Endpoint) -> Outcome {
    let client = Client::new(endpoint).unwrap();
    client.attempt(&delivery(Some(b"{}"))).await
}

fn address(url: &str) -> SocketAddr {
    let url: Url = url.parse().unwrap();
    SocketAddr::new(
        url.host_str().unwrap().parse().unwrap(),
        url.port().unwrap(),
    )
}

#[tokio::test]
async fn a_plain_request_goes_through() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut proxy = Between::start(Some(address(&server.url)), false).await;
    let directory = Directory::new();
    let mut endpoint = through("http://a.example/hook?a=b", &proxy.url);
    // Nobody here knows the name: the proxy does.
    let outcome = send(&endpoint).await;
    assert_eq!((outcome.class, outcome.status), (Class::Proxy, Some(407)));
    assert_eq!(Health::of(&outcome), Health::Neither);
    assert!(!proxy.head().await.contains("proxy-authorization"));

    let auth_file = directory.write("proxy", "user:s3cret\n");
    endpoint.proxy.as_mut().unwrap().auth_file = Some(auth_file);
    assert_eq!(send(&endpoint).await.class, Class::Success);
    let head = proxy.head().await;
    assert!(
        head.starts_with("post http://a.example/hook?a=b http/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nhost: a.example\r\n"), "{head}");
    assert_eq!(soon(&mut rx).await.body, b"{}");

    // Credentials that are replaced are those that are sent.
    let client = Client::new(&endpoint).unwrap();
    directory.write("proxy", "user:old");
    sleep(Duration::from_millis(1100)).await;
    let outcome = client.attempt(&delivery(Some(b"{}"))).await;
    assert_eq!(outcome.class, Class::Proxy);
}

#[tokio::test]
async fn a_tunnel_is_opened_for_https() {
    let ca = Ca::new();
    let directory = Directory::new();
    let secure = Secure::start(&ca.issue("a.example"), None, Duration::ZERO).await;
    let mut proxy = Between::start(Some(address(&secure.url)), false).await;
    let mut endpoint = through("https://a.example/hook", &proxy.url);
    endpoint.tls.ca_file = Some(directory.write("ca", &ca.pem));
    let outcome = send(&endpoint).await;
    assert_eq!((outcome.class, outcome.status), (Class::Proxy, None));
    assert!(
        outcome
            .error
            .unwrap()
            .contains("proxy authorization required")
    );
    assert!(!proxy.head().await.contains("proxy-authorization"));

    let auth_file = directory.write("proxy", "user:s3cret");
    endpoint.proxy.as_mut().unwrap().auth_file = Some(auth_file);
    let outcome = send(&endpoint).await;
    assert_eq!(outcome.class, Class::Success, "{:?}", outcome.error);
    let head = proxy.head().await;
    assert!(
        head.starts_with("connect a.example:443 http/1.1\r\n"),
        "{head}"
    );

    // The certificate is still the endpoint's to show.
    endpoint.url = "https://b.example/hook".parse().unwrap();
    assert_eq!(send(&endpoint).await.class, Class::Tls);
}

#[tokio::test]
async fn what_fails_at_the_proxy_is_not_the_endpoints_fault() {
    // Nobody listens there any more.
    let gone = Server::answering(b"", Then::HangUp).await.url;
    let (gone, unknown) = (
        gone.replace("/hook", ""),
        "http://proxy.invalid:3128".into(),
    );
    for proxy in [gone, unknown] {
        for url in ["http://a.example/", "https://a.example/"] {
            let outcome = send(&through(url, &proxy)).await;
            let shown = format!("{url} through {proxy}: {:?}", outcome.error);
            assert_eq!(outcome.class, Class::Proxy, "{shown}");
            assert_eq!(Health::of(&outcome), Health::Neither, "{shown}");
        }
    }
}

#[tokio::test]
async fn an_endpoint_that_the_proxy_cannot_reach_is_at_fault() {
    let proxy = Between::start(None, true).await;
    for (url, class) in [
        ("http://a.example/", Class::Unavailable),
        ("https://a.example/", Class::Connect),
    ] {
        let outcome = send(&through(url, &proxy.url)).await;
        assert_eq!(outcome.class, class, "{url}: {:?}", outcome.error);
        assert_eq!(Health::of(&outcome), Health::Bad, "{url}");
    }
    assert_eq!(proxy.server.accepted(), 2);
}

#[tokio::test]
async fn tokens_are_asked_for_through_the_proxy() {
    let mut proxy = Between::start(None, false).await;
    let directory = Directory::new();
    let mut endpoint = through("http://a.example/hook", &proxy.url);
    endpoint.auth = auth::Config::OAuth2(auth::oauth2::Config {
        token_url: "http://tokens.example/token".parse().unwrap(),
        client_id: "relay".into(),
        client_secret_file: directory.write("secret", "s3cret"),
        scope: None,
        audience: None,
    });
    let outcome = send(&endpoint).await;
    assert_eq!((outcome.class, outcome.status), (Class::Proxy, None));
    let head = proxy.head().await;
    assert!(
        head.starts_with("post http://tokens.example/token http/1.1\r\n"),
        "{head}"
    );
    drop(proxy);
    let outcome = send(&endpoint).await;
    assert_eq!(outcome.class, Class::Proxy, "{:?}", outcome.error);
}

#[tokio::test]
async fn credentials_that_are_none_stop_the_start() {
    let directory = Directory::new();
    for (text, want) in [
        ("", "is empty"),
        ("s3cret", "holds no user and password with a colon"),
        ("user:s3cret\u{e9}\nmore", "holds more than one line"),
    ] {
        let mut endpoint = through("http://a.example/", "http://proxy:3128");
        endpoint.proxy.as_mut().unwrap().auth_file = Some(directory.write("proxy", text));
        let error = Client::new(&endpoint).err().unwrap().to_string();
        assert!(
            error.starts_with("endpoint test: proxy_auth_file: /"),
            "{error}"
        );
        assert!(error.contains(want) && !error.contains("s3cret"), "{error}");
    }
}

/// Why the configuration refuses it. When this fails, the library has learnt it, and the check can go.
#[tokio::test]
async fn an_ipv6_address_cannot_be_reached_over_tls_through_a_proxy() {
    let ca = Ca::new();
    let directory = Directory::new();
    let secure = Secure::start(&ca.issue("::1"), None, Duration::ZERO).await;
    let proxy = Between::start(Some(address(&secure.url)), true).await;
    let mut endpoint = through("https://[::1]/hook", &proxy.url);
    endpoint.tls.ca_file = Some(directory.write("ca", &ca.pem));
    let outcome = send(&endpoint).await;
    assert_eq!(outcome.class, Class::Connect);
    let error = outcome.error.unwrap();
    assert!(error.ends_with("Invalid Server Name"), "{error}");
}
