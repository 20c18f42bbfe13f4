//! The guard against names and addresses that lead where nobody should get.

use std::{net::SocketAddr, sync::Mutex};

use super::{
    super::guard::{Config, Lookup, network, system},
    *,
};
use crate::delivery::file::tests::Directory;

fn on(allow: &[&str]) -> Config {
    let allow = allow.iter().map(|text| network(text).unwrap()).collect();
    Config::On { allow }
}

fn guarded(url: &str, guard: Config) -> Endpoint {
    Endpoint {
        guard,
        ..endpoint(url)
    }
}

/// Gives one answer after the other, for any name.
fn answers(list: &'static [&'static str]) -> Lookup {
    let list = Mutex::new(list.iter());
    Arc::new(move |_| {
        let text = list.lock().unwrap().next().expect("another answer");
        let address = SocketAddr::new(text.parse().unwrap(), 0);
        Box::pin(async move { Ok(vec![address]) })
    })
}

async fn send(client: &Client) -> Outcome {
    client.attempt(&delivery(Some(b"{}"))).await
}

const CLOSE: &[u8] = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_name_that_leads_home_is_refused_before_anything_is_sent() {
    let server = Server::answering(CLOSE, Then::HangUp).await;
    let url = server.url.replace("127.0.0.1", "localhost");
    let client = Client::new(&guarded(&url, on(&[]))).unwrap();
    let outcome = send(&client).await;
    assert_eq!(seen(&outcome), (Class::Misconfigured, None, None));
    let error = outcome.error.unwrap();
    let want =
        "is a loopback address, which the endpoint's guard refuses (guard.allow lists exceptions)";
    assert!(error.contains(want), "{error}");
    assert!(!error.contains("localhost"), "{error}");
    assert_eq!(server.accepted(), 0);

    let allow = on(&["127.0.0.0/8", "::1/128"]);
    let client = Client::new(&guarded(&url, allow)).unwrap();
    assert_eq!(send(&client).await.class, Class::Success);
    let client = Client::new(&guarded(&url, Config::Off)).unwrap();
    assert_eq!(send(&client).await.class, Class::Success);
}

#[tokio::test]
async fn a_name_is_checked_at_every_connection() {
    let server = Server::answering(CLOSE, Then::HangUp).await;
    let url = server.url.replace("127.0.0.1", "a.example");
    let endpoint = guarded(&url, on(&["127.0.0.1/32"]));
    // The name is harmless at first, then it leads to another address of this machine, then to the cloud's metadata.
    let lookup = answers(&["127.0.0.1", "127.0.0.2", "169.254.169.254", "127.0.0.1"]);
    let client = Client::resolving(&endpoint, lookup).unwrap();
    let mut classes = Vec::new();
    for _ in 0..4 {
        classes.push(send(&client).await.class);
    }
    let refused = Class::Misconfigured;
    assert_eq!(classes, [Class::Success, refused, refused, Class::Success]);
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn a_connection_goes_to_the_address_that_was_checked() {
    let server = Server::answering(b"HTTP/1.1 204 No Content\r\n\r\n", Then::KeepOpen).await;
    let url = server.url.replace("127.0.0.1", "a.example");
    let endpoint = guarded(&url, on(&["127.0.0.1/32"]));
    // One answer for two requests: nobody looks again, and the connection stays.
    let client = Client::resolving(&endpoint, answers(&["127.0.0.1"])).unwrap();
    for _ in 0..2 {
        assert_eq!(send(&client).await.class, Class::Success);
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_no_refusal() {
    let fails: Lookup =
        Arc::new(|_| Box::pin(async { Err(std::io::Error::other("no such name")) }));
    let endpoint = guarded("http://a.example/", on(&[]));
    let client = Client::resolving(&endpoint, fails).unwrap();
    let outcome = send(&client).await;
    assert_eq!(outcome.class, Class::Dns);
    assert!(outcome.error.unwrap().ends_with("no such name"));
    let nothing: Lookup = Arc::new(|_| Box::pin(async { Ok(Vec::new()) }));
    let client = Client::resolving(&endpoint, nothing).unwrap();
    assert_eq!(send(&client).await.class, Class::Connect);
}

#[tokio::test]
async fn an_address_in_any_spelling_is_refused_at_start() {
    let server = Server::answering(CLOSE, Then::HangUp).await;
    let port = server.url.rsplit([':', '/']).nth(1).unwrap();
    for host in [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f.1",
        "0.0.0.0",
    ] {
        let url = format!("http://{host}:{port}/");
        let error = Client::new(&guarded(&url, on(&[]))).err().expect(host);
        let error = error.to_string();
        assert!(error.starts_with("endpoint test: url: "), "{error}");
        assert!(error.contains("guard refuses"), "{error}");
    }
    for host in ["2130706433", "0x7f.1"] {
        let url = format!("http://{host}:{port}/");
        let client = Client::new(&guarded(&url, on(&["127.0.0.0/8"]))).unwrap();
        assert_eq!(send(&client).await.class, Class::Success, "{host}");
    }
}

#[tokio::test]
async fn tokens_are_asked_for_at_allowed_addresses_only() {
    let server = Server::answering(CLOSE, Then::HangUp).await;
    let directory = Directory::new();
    let with = |token_url: &str| {
        let mut endpoint = guarded("http://a.example/", on(&[]));
        endpoint.auth = auth::Config::OAuth2(auth::oauth2::Config {
            token_url: token_url.parse().unwrap(),
            client_id: "relay".into(),
            client_secret_file: directory.write("secret", "s3cret"),
            scope: None,
            audience: None,
        });
        Client::resolving(&endpoint, system())
    };
    let error = with(&server.url).err().unwrap().to_string();
    assert!(error.contains("oauth2.token_url: 127.0.0.1 is"), "{error}");
    let client = with(&server.url.replace("127.0.0.1", "localhost")).unwrap();
    let outcome = send(&client).await;
    assert_eq!(outcome.class, Class::Misconfigured);
    let error = outcome.error.unwrap();
    assert!(error.starts_with("no access token from "), "{error}");
    assert!(error.contains("guard refuses"), "{error}");
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn a_redirect_leads_nowhere() {
    let inside = Server::answering(CLOSE, Then::HangUp).await;
    let head = format!(
        "HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
        inside.url
    );
    let server = Server::start(move |mut peer| {
        let head = head.clone();
        async move {
            while peer.request().await.is_some() {
                peer.send(head.as_bytes()).await;
            }
        }
    })
    .await;
    let client = Client::new(&guarded(&server.url, on(&["127.0.0.1/32"]))).unwrap();
    assert_eq!(send(&client).await.class, Class::Redirect);
    assert_eq!((server.accepted(), inside.accepted()), (1, 0));
}
