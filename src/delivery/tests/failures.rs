//! What breaks, what is never reached, and what becomes of connections.

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::*;

// === what breaks ===

#[tokio::test]
async fn hanging_up_is_a_reset() {
    let table = [
        (b"".as_slice(), None, None, "error sending request: "),
        (b"HTTP/1.1 200", None, None, "error sending request: "),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
            Some(200),
            Some("half"),
            "HTTP 200 OK, but its body broke off: ",
        ),
        (
            b"HTTP/1.1 410 Gone\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            Some(410),
            Some("half"),
            "HTTP 410 Gone, but its body broke off: ",
        ),
    ];
    for (answer, status, response, text) in table {
        let server = Server::answering(answer, Then::HangUp).await;
        let outcome = attempt(&server.url).await;
        assert_eq!(
            seen(&outcome),
            (Class::Reset, status, response),
            "{:?}",
            outcome.error
        );
        let error = outcome.error.unwrap();
        assert!(error.starts_with(text), "{error}");
        assert!(!error.contains("127.0.0.1"), "{error}");
    }
}

#[tokio::test]
async fn a_reset_is_a_reset() {
    let server = Server::start(|mut peer| async move {
        peer.0.read_exact(&mut [0; 8]).await.unwrap();
        // Closed with some of the request unread, the kernel answers with RST.
    })
    .await;
    let outcome = attempt(&server.url).await;
    assert_eq!(
        seen(&outcome),
        (Class::Reset, None, None),
        "{:?}",
        outcome.error
    );
}

#[tokio::test]
async fn the_deadline_reaches_to_the_last_byte() {
    let silent = Server::answering(b"", Then::Stall).await;
    let outcome = attempt_shortly(&silent.url).await;
    assert_eq!(seen(&outcome), (Class::Timeout, None, None));
    assert_eq!(outcome.error.unwrap(), "no answer within 300ms");
    assert!((SHORT..SOON).contains(&outcome.duration));

    // A byte now and then keeps nothing alive.
    let dripping = Server::start(|mut peer| async move {
        peer.request().await;
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            .await;
        while peer.0.write_all(b".").await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let outcome = attempt_shortly(&dripping.url).await;
    assert_eq!((outcome.class, outcome.status), (Class::Timeout, Some(200)));
    assert_eq!(
        outcome.error.unwrap(),
        "HTTP 200 OK, but its body was not finished within 300ms"
    );
    assert!(outcome.response.unwrap().starts_with(".."));
    assert!((SHORT..SOON).contains(&outcome.duration));

    // Nor do answers that are none yet.
    let stalling = Server::start(|mut peer| async move {
        peer.request().await;
        while peer
            .0
            .write_all(b"HTTP/1.1 102 Processing\r\n\r\n")
            .await
            .is_ok()
        {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let outcome = attempt_shortly(&stalling.url).await;
    assert_eq!(
        seen(&outcome),
        (Class::Timeout, None, None),
        "{:?}",
        outcome.error
    );
}

#[tokio::test]
async fn what_is_no_http_is_a_protocol_error() {
    let answers: [(&[u8], Option<u16>); 6] = [
        (b"SSH-2.0-OpenSSH_9.2\r\n", None),
        (b"HTTP/1.1 two hundred\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", None),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
            None,
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            Some(200),
        ),
        (b"HTTP/1.1 999 ?\r\ncontent-length: 0\r\n\r\n", Some(999)),
    ];
    for (answer, status) in answers {
        let server = Server::answering(answer, Then::Stall).await;
        let outcome = attempt(&server.url).await;
        assert_eq!(
            (outcome.class, outcome.status),
            (Class::Protocol, status),
            "{:?}",
            outcome.error
        );
    }
}

#[tokio::test]
async fn a_head_without_end_is_not_kept() {
    let server = Server::start(|mut peer| async move {
        peer.request().await;
        peer.send(b"HTTP/1.1 200 OK\r\n").await;
        while peer.0.write_all(&[b'x'; 4096]).await.is_ok() {}
    })
    .await;
    let outcome = attempt(&server.url).await;
    assert_eq!(
        seen(&outcome),
        (Class::Protocol, None, None),
        "{:?}",
        outcome.error
    );
}

// === what is never reached ===

#[tokio::test]
async fn a_refused_connection_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/?token=hidden", listener.local_addr().unwrap());
    drop(listener);
    let outcome = attempt(&url).await;
    assert_eq!(seen(&outcome), (Class::Connect, None, None));
    let error = outcome.error.unwrap();
    assert!(
        error.contains("Connection refused") && !error.contains("hidden"),
        "{error}"
    );
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_dns() {
    // The second can't even be asked for: a label has 63 bytes at most.
    let long = format!("http://{}.invalid/", "a".repeat(64));
    for url in ["http://does-not-exist.invalid/", &long] {
        let outcome = attempt(url).await;
        assert_eq!(
            seen(&outcome),
            (Class::Dns, None, None),
            "{:?}",
            outcome.error
        );
    }
}

#[tokio::test]
async fn tls_on_a_plain_port_is_tls() {
    let answers: [&'static [u8]; 2] = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""];
    for answer in answers {
        let server = Server::start(move |mut peer| async move {
            // The greeting of TLS: a record of type handshake.
            let mut greeting = Vec::new();
            peer.0.read_buf(&mut greeting).await.unwrap();
            assert_eq!(greeting[0], 22);
            peer.send(answer).await;
        })
        .await;
        let outcome = attempt(&server.url.replace("http:", "https:")).await;
        assert_eq!(
            seen(&outcome),
            (Class::Tls, None, None),
            "{:?}",
            outcome.error
        );
    }
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_a_connect_timeout() {
    let server = Server::start(|mut peer| async move { peer.closed().await }).await;
    let endpoint = Endpoint {
        connect_timeout: SHORT,
        ..endpoint(&server.url.replace("http:", "https:"))
    };
    let client = Client::new(&endpoint).unwrap();
    let outcome = client.attempt(&delivery(Some(b"{}"))).await;
    assert_eq!(
        seen(&outcome),
        (Class::ConnectTimeout, None, None),
        "{:?}",
        outcome.error
    );
}

// === connections ===

#[tokio::test]
async fn a_connection_is_used_again() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n{}",
            "x".repeat(60_000)
        ),
        "HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n".to_owned(),
    ] {
        let server = Server::answering(answer.leak().as_bytes(), Then::KeepOpen).await;
        let client = client(&server.url);
        for _ in 0..20 {
            let outcome = client.attempt(&delivery(Some(b"{}"))).await;
            assert!(outcome.status.is_some(), "{:?}", outcome.error);
        }
        assert_eq!(server.accepted(), 1);
    }
}

#[tokio::test]
async fn a_reset_on_a_used_connection_is_sent_again_once() {
    let server = Server::start(|mut peer| async move {
        peer.request().await;
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await;
        // The second request on a connection is read, and the connection closed.
        peer.request().await;
    })
    .await;
    let client = client(&server.url);
    for body in [b"{}".as_slice(), [b'1'; 2 * PART].as_slice()] {
        let body: &'static [u8] = body.to_vec().leak();
        for connections in 1..=3 {
            let outcome = client.attempt(&delivery(Some(body))).await;
            assert_eq!(outcome.class, Class::Success, "{:?}", outcome.error);
            assert!(server.accepted() >= connections);
        }
    }
}

#[tokio::test]
async fn a_reset_on_a_new_connection_is_not_sent_again() {
    let server = Server::answering(b"", Then::HangUp).await;
    let outcome = attempt(&server.url).await;
    assert_eq!(outcome.class, Class::Reset, "{:?}", outcome.error);
    assert_eq!(server.accepted(), 1);
}

/// A server that says in `closed` when a client has left it alone, after it has sent `answer`.
async fn watching(answer: &'static [u8], closed: mpsc::UnboundedSender<()>) -> Server {
    Server::start(move |mut peer| {
        let closed = closed.clone();
        async move {
            peer.request().await;
            peer.send(answer).await;
            peer.closed().await;
            closed.send(()).unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn an_attempt_that_is_dropped_closes_its_connection() {
    let answers: [&'static [u8]; 2] = [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"];
    for answer in answers {
        let (tx, mut rx) = mpsc::unbounded_channel();
        let server = watching(answer, tx).await;
        let client = client(&server.url);
        let delivery = delivery(Some(b"{}"));
        // Dropped by an impatient caller, not by its own deadline.
        timeout(SHORT, client.attempt(&delivery)).await.unwrap_err();
        soon(&mut rx).await;
        assert_eq!(server.accepted(), 1);

        // The client is as good as before, and the broken connection is not offered again.
        timeout(SHORT, client.attempt(&delivery)).await.unwrap_err();
        soon(&mut rx).await;
        assert_eq!(server.accepted(), 2);
    }
}

#[tokio::test]
async fn an_attempt_that_is_dropped_stops_sending() {
    const SIZE: usize = 16 * 1024 * 1024;
    let (tx, mut rx) = mpsc::unbounded_channel();
    let dropped = Arc::new(Notify::new());
    let may_read = Arc::clone(&dropped);
    let server = Server::start(move |mut peer| {
        let (tx, may_read) = (tx.clone(), Arc::clone(&may_read));
        async move {
            may_read.notified().await;
            let mut bytes = Vec::new();
            // Whether it ends in EOF or in RST.
            drop(peer.0.read_to_end(&mut bytes).await);
            tx.send(bytes.len()).unwrap();
        }
    })
    .await;
    let delivery = Delivery {
        body: Some(vec![b'x'; SIZE].into()),
        ..delivery(None)
    };
    let client = client(&server.url);
    timeout(SHORT, client.attempt(&delivery)).await.unwrap_err();
    dropped.notify_one();
    let received = soon(&mut rx).await;
    assert!(received < SIZE, "{received}");
}

#[tokio::test]
async fn a_missed_deadline_closes_its_connection() {
    let (tx, mut rx) = mpsc::unbounded_channel();
    let server = watching(b"", tx).await;
    attempt_shortly(&server.url).await;
    soon(&mut rx).await;
}

#[tokio::test]
async fn what_would_split_a_request_never_reaches_the_socket() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let client = client(&server.url);
    let bad = [
        ("x", "a\r\nevil: 1"),
        ("x", "a\r\n evil: 1"),
        ("x", "a\revil"),
        ("x", "a\nevil"),
        ("x", "a\0evil"),
        ("x\r\nevil", "1"),
        ("x\0", "evil"),
        ("x:", "evil"),
    ];
    for (name, value) in bad {
        let mut row = delivery(Some(b"{}"));
        row.headers = vec![("first".into(), "evil".into()), (name.into(), value.into())];
        let outcome = client.attempt(&row).await;
        assert_eq!(outcome.class, Class::Unsendable, "{name:?} {value:?}");
    }
    assert_eq!(server.accepted(), 0);
    let mut row = delivery(Some(b"{}"));
    row.headers = vec![("first".into(), " good\t".into())];
    assert_eq!(client.attempt(&row).await.class, Class::Success);
    let head = soon(&mut rx).await.head;
    assert!(head.contains("\r\nfirst: good\r\n"), "{head}");
    assert!(!head.contains("evil"), "{head}");
}
