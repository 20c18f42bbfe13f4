//! What is sent, and what is made of answers that come.

use std::io::Write;

use flate2::{Compression, GzBuilder, read::MultiGzDecoder};

use super::*;

// === what is sent ===

#[tokio::test]
async fn the_stored_bytes_are_sent_as_they_are() {
    let stored: &[u8] = br#"{"n": 50755254975729665, "x":1e400, "n": 0.1000}"#;
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let client = client(&format!("{}?token=1", server.url));
    let outcome = client.attempt(&delivery(Some(stored))).await;
    assert_eq!(seen(&outcome), (Class::Success, Some(204), None));
    assert_eq!((outcome.error, outcome.retry_after), (None, None));

    let request = soon(&mut rx).await;
    assert_eq!(request.body, stored);
    let mut lines: Vec<_> = request.head.trim_end().lines().collect();
    lines.sort_unstable();
    let host = format!(
        "host: {}",
        &server.url["http://".len()..server.url.len() - 5]
    );
    let mut want = vec![
        "POST /hook?token=1 HTTP/1.1",
        "accept: */*",
        "content-length: 48",
        "content-type: application/json",
        &host,
        "idempotency-key: \"00000000-0000-0000-0000-000000000007\"",
        "outbox-attempt: 1",
        "outbox-created-at: 2026-01-02T03:04:05Z",
        "outbox-message-id: 00000000-0000-0000-0000-000000000007",
        "outbox-topic: order.created",
        concat!("user-agent: outbox-relay/", env!("CARGO_PKG_VERSION")),
    ];
    want.sort_unstable();
    assert_eq!(lines, want);

    // Neither a body nor a type, but a length.
    client.attempt(&delivery(None)).await;
    let request = soon(&mut rx).await;
    assert_eq!(request.body, b"");
    assert!(request.head.contains("\r\ncontent-length: 0\r\n"));
    assert!(!request.head.contains("content-type"));
}

#[tokio::test]
async fn a_megabyte_arrives_whole() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let body: Bytes = (0_u32..300_000).flat_map(u32::to_le_bytes).collect();
    let delivery = Delivery {
        body: Some(body.clone()),
        ..delivery(None)
    };
    let outcome = client(&server.url).attempt(&delivery).await;
    assert_eq!(outcome.class, Class::Success);
    assert_eq!(soon(&mut rx).await.body, body);
}

#[tokio::test]
async fn a_row_that_cannot_be_sent_opens_no_connection() {
    let server = Server::answering(b"", Then::HangUp).await;
    let mut bad = delivery(Some(b"{}"));
    bad.headers = vec![("Host".into(), "evil".into())];
    let outcome = client(&server.url).attempt(&bad).await;
    assert_eq!(seen(&outcome), (Class::Unsendable, None, None));
    assert_eq!(
        outcome.error.unwrap(),
        "header \"Host\" is one that HTTP or the relay itself sets"
    );

    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn a_url_has_no_credentials_and_its_query_is_in_no_error() {
    let (server, _rx) = Server::recording(b"no HTTP\r\n").await;
    let url = server.url.replace("http://", "http://user:secret@");
    let error = Client::new(&Endpoint::new("shop", url.parse().unwrap()));
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("without credentials") && !error.contains("secret"),
        "{error}"
    );
    let outcome = attempt(&(server.url + "?token=hidden")).await;
    let error = outcome.error.unwrap();
    assert!(!error.contains("hidden"), "{error}");
}

#[test]
fn a_url_that_nothing_can_be_sent_to_is_found_at_start() {
    for url in ["ftp://127.0.0.1/", "file:///etc/passwd", "mailto:a@b.c"] {
        let error = Client::new(&endpoint(url)).err().unwrap();
        assert!(
            error.to_string().starts_with("endpoint test: its URL"),
            "{url}"
        );
    }
    install_tls();
}

// === what is answered ===

#[tokio::test]
async fn an_answer_is_recorded() {
    let server = Server::answering(
        b"HTTP/1.1 200 OK\r\nretry-after: 9\r\ncontent-length: 5\r\n\r\nhello",
        Then::KeepOpen,
    )
    .await;
    let outcome = attempt(&server.url).await;
    assert_eq!(seen(&outcome), (Class::Success, Some(200), Some("hello")));
    assert_eq!((outcome.error, outcome.retry_after), (None, None));
    assert!(outcome.duration > Duration::ZERO && outcome.duration < SOON);
}

#[tokio::test]
async fn a_failure_can_be_stored_and_says_when_to_come_back() {
    let server = Server::answering(
        b"HTTP/1.1 503 Whatever\r\nx-latin: caf\xe9\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
          retry-after: Sun, 06 Nov 1994 08:51:37 GMT\r\ncontent-length: 6\r\n\r\na\0\xffb\xc3\xa9",
        Then::KeepOpen,
    )
    .await;
    let outcome = attempt(&server.url).await;
    assert_eq!(
        seen(&outcome),
        (Class::Unavailable, Some(503), Some("a\u{FFFD}\u{FFFD}bé"))
    );
    assert_eq!(outcome.error.unwrap(), "HTTP 503 Service Unavailable");
    assert_eq!(outcome.retry_after, Some(Duration::from_secs(120)));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Server::answering(
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        Then::KeepOpen,
    )
    .await;
    let location = target.url.clone();
    let server = Server::start(move |mut peer| {
        let location = location.clone();
        async move {
            peer.request().await;
            let head = format!(
                "HTTP/1.1 302 Found\r\nlocation: {location}?token=1\r\ncontent-length: 0\r\n\r\n"
            );
            peer.send(head.as_bytes()).await;
        }
    })
    .await;
    let outcome = attempt(&server.url).await;
    assert_eq!(seen(&outcome), (Class::Redirect, Some(302), None));
    assert_eq!(
        outcome.error.unwrap(),
        format!("HTTP 302 Found, Location: {}?…", target.url)
    );
    assert_eq!(target.accepted(), 0);
}

#[tokio::test]
async fn an_answer_may_come_before_the_whole_request() {
    let server = Server::start(|mut peer| async move {
        peer.0.read_buf(&mut Vec::new()).await.unwrap();
        peer.send(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
        peer.closed().await;
    })
    .await;
    let delivery = Delivery {
        body: Some(vec![b'x'; 16 * 1024 * 1024].into()),
        ..delivery(None)
    };
    let outcome = client(&server.url).attempt(&delivery).await;
    assert_eq!(
        seen(&outcome),
        (Class::Rejected, Some(413), None),
        "{:?}",
        outcome.error
    );
    assert_eq!(outcome.error.unwrap(), "HTTP 413 Payload Too Large");
}

#[tokio::test]
async fn a_success_that_is_endless_is_a_success() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    ] {
        let (tx, mut rx) = mpsc::unbounded_channel();
        let server = Server::start(move |mut peer| {
            let tx = tx.clone();
            async move {
                peer.request().await;
                peer.send(head.as_bytes()).await;
                // With or without lengths of chunks, this is a body of any length.
                let part = format!("961\r\nx{}\r\n", "\u{1F600}".repeat(600));
                while peer.0.write_all(part.as_bytes()).await.is_ok() {}
                tx.send(()).unwrap();
            }
        })
        .await;
        let outcome = attempt(&server.url).await;
        assert_eq!(
            (outcome.class, outcome.status),
            (Class::Success, Some(200)),
            "{head}"
        );
        let response = outcome.response.unwrap();
        assert!(
            (EXCERPT - 3..=EXCERPT).contains(&response.len()),
            "{}",
            response.len()
        );
        assert!(!response.contains('\u{FFFD}'));
        // And the server is not left writing into a connection that nobody reads.
        soon(&mut rx).await;
    }
}

/// What this process had in memory at most so far, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn what_is_packed_stays_packed() {
    // Fifty members of a megabyte each: gzip takes them for one file.
    let mut member = GzBuilder::new().write(Vec::new(), Compression::best());
    member.write_all(&vec![b'x'; 1 << 20]).unwrap();
    let bomb = member.finish().unwrap().repeat(50);
    let mut inside = MultiGzDecoder::new(&bomb[..]);
    let unpacked = std::io::copy(&mut inside, &mut std::io::sink()).unwrap();
    assert_eq!(unpacked, 50 << 20);
    assert!(
        bomb.len() < DRAIN,
        "{}: it would not be read whole",
        bomb.len()
    );

    let head = format!(
        "HTTP/1.1 422 Refused\r\ncontent-encoding: gzip\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        bomb.len()
    );
    let answer: &'static [u8] = [head.as_bytes(), &bomb].concat().leak();
    let (server, mut rx) = Server::recording(answer).await;
    let client = client(&server.url);
    client.attempt(&delivery(Some(b"{}"))).await;
    let before = peak();
    let outcome = client.attempt(&delivery(Some(b"{}"))).await;
    let more = peak() - before;
    assert!(more < 10 << 20, "{more} bytes more");
    assert_eq!(
        (outcome.class, outcome.status),
        (Class::Rejected, Some(422))
    );
    // Its first bytes, as far as text can hold them.
    let response = outcome.response.unwrap();
    assert!(response.starts_with("\u{1f}\u{FFFD}\u{8}"), "{response:?}");
    assert!(response.len() <= EXCERPT);
    // Nobody had asked for it, and the connection is used again.
    assert!(!soon(&mut rx).await.head.contains("accept-encoding"));
    assert_eq!(server.accepted(), 1);

    // Of results it is none, however many of them are inside.
    let accepted = [
        &b"HTTP/1.1 207 Multi-Status"[..],
        &answer["HTTP/1.1 422 Refused".len()..],
    ];
    let server = Server::answering(accepted.concat().leak(), Then::KeepOpen).await;
    let batched = Endpoint {
        batch: Some(batch::Config::default()),
        ..endpoint(&server.url)
    };
    let answered = Client::new(&batched)
        .unwrap()
        .attempt_batch(&[&delivery(None)], Propagation::Untouched)
        .await;
    assert_eq!(answered.whole.class, Class::Protocol);
    let more = peak() - before;
    assert!(more < 20 << 20, "{more} bytes more");
}

#[test]
fn a_body_that_ends_before_its_length_is_not_whole() {
    let answer = Answer {
        status: Some(StatusCode::OK),
        promised: Some(10),
        ..Answer::default()
    };
    let (class, error) = answer.whole(None);
    assert_eq!(class, Class::Reset);
    assert_eq!(
        error.unwrap(),
        "HTTP 200 OK, but its body ended before its 10 bytes"
    );
}

#[test]
fn an_excerpt_is_cut_on_a_character() {
    let text = |body: &[u8]| excerpt(&body[..body.len().min(EXCERPT + 3)]).unwrap();
    for shift in 0..4 {
        let body = "x".repeat(shift) + &"\u{1F600}".repeat(EXCERPT);
        let cut = text(body.as_bytes());
        assert!(body.starts_with(&cut));
        assert!(cut.len() > EXCERPT - 4 && cut.len() <= EXCERPT);
    }
    assert_eq!(text(&[0xff; 4 * EXCERPT]), "\u{FFFD}".repeat(EXCERPT / 3));
    assert_eq!(text(&[0; 4 * EXCERPT]), "\u{FFFD}".repeat(EXCERPT / 3));
    // A body that is whole and ends within a character shows so.
    assert_eq!(text(b"caf\xc3"), "caf\u{FFFD}");
    assert_eq!(excerpt(b""), None);
}
