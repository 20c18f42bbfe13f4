//! Methods, URLs and headers as a receiver sees them.

use std::io::Read;

use super::{signing::header, *};

use crate::delivery::{
    file::tests::Directory,
    format::Shape,
    sign::{
        Secret,
        tests::{FIRST, signatures},
    },
};

#[tokio::test]
async fn an_endpoint_chooses_method_url_and_headers() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let directory = Directory::new();
    let mut endpoint = endpoint(&format!("{}/{{topic}}/x-{{key}}?t={{topic}}", server.url));
    endpoint.format.method = reqwest::Method::PUT;
    endpoint.format.headers = vec![
        ("x-tenant".parse().unwrap(), "acme".parse().unwrap()),
        ("user-agent".parse().unwrap(), "shop/1".parse().unwrap()),
    ];
    endpoint.format.header_files = vec![(
        "x-api-key".parse().unwrap(),
        directory.write("key", " one two\t\n"),
    )];
    let client = Client::new(&endpoint).unwrap();
    let mut row = delivery(Some(b"{}"));
    row.key = Some("../a?b".into());
    client.attempt(&row).await;
    let request = soon(&mut rx).await;
    let line = request.head.lines().next().unwrap();
    let want = "PUT /hook/order.created/x-..%2Fa%3Fb?t=order.created HTTP/1.1";
    assert_eq!(line, want);
    assert_eq!(header(&request, "x-tenant"), "acme");
    // As HTTP/2 would show them, blanks around a value would make the request malformed.
    let whole = |line: &&str| line.starts_with("x-api-key:");
    assert_eq!(request.head.lines().find(whole), Some("x-api-key: one two"));
    assert_eq!(header(&request, "user-agent"), "shop/1");

    for name in ["X-Tenant", "x-api-key"] {
        row.headers = vec![(name.into(), "mine".into())];
        let outcome = client.attempt(&row).await;
        assert_eq!(outcome.class, Class::Unsendable);
        let want = format!("header {name:?} is one that the endpoint sets");
        assert_eq!(outcome.error.unwrap(), want);
    }
    row.headers.clear();
    row.key = None;
    let outcome = client.attempt(&row).await;
    assert_eq!(outcome.class, Class::Unsendable);
    let want = "the endpoint's URL has {key}, and the row has no key";
    assert_eq!(outcome.error.unwrap(), want);
}

#[tokio::test]
async fn a_header_of_blanks_alone_is_none() {
    let directory = Directory::new();
    for text in ["\n", " \t\n"] {
        let mut endpoint = endpoint("http://127.0.0.1:9/");
        let file = directory.write("key", text);
        endpoint.format.header_files = vec![("x-api-key".parse().unwrap(), file)];
        let error = Client::new(&endpoint).err().unwrap().to_string();
        assert!(error.ends_with("/key: is empty"), "{error}");
    }
}

#[tokio::test]
async fn an_event_can_have_attributes_of_the_row() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut endpoint = endpoint(&server.url);
    endpoint.format.shape = Shape::Binary { source: "/".into() };
    let client = Client::new(&endpoint).unwrap();
    let mut row = delivery(Some(b"{}"));
    row.headers = vec![("ce-tenant".into(), "acme".into())];
    client.attempt(&row).await;
    let request = soon(&mut rx).await;
    assert_eq!(header(&request, "ce-tenant"), "acme");
    assert_eq!(header(&request, "ce-type"), "order.created");
    assert_eq!(request.body, b"{}");
    row.headers = vec![("CE-Id".into(), "mine".into())];
    assert_eq!(client.attempt(&row).await.class, Class::Unsendable);
}

#[tokio::test]
async fn a_large_body_is_compressed_and_signed_as_it_is_sent() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut endpoint = endpoint(&server.url);
    endpoint.format.gzip_above = Some(1024);
    endpoint.sign.secrets = vec![Secret::parse(FIRST).unwrap()];
    let client = Client::new(&endpoint).unwrap();
    let large: &[u8] = &[b' '; 100_000];
    let mut row = delivery(Some(large));
    client.attempt(&row).await;
    let request = soon(&mut rx).await;
    assert_eq!(header(&request, "content-encoding"), "gzip");
    assert!(request.body.len() < 1000);
    let mut back = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(&request.body[..]);
    decoder.read_to_end(&mut back).unwrap();
    assert_eq!(back, large);
    let id = header(&request, "webhook-id");
    let seconds = header(&request, "webhook-timestamp").parse().unwrap();
    let want = signatures(&[FIRST], &id, seconds, &request.body);
    let found = header(&request, "webhook-signature");
    assert_eq!(found, want["webhook-signature"].to_str().unwrap());

    // Not what is short, would not get shorter, or is encoded already.
    row.body = Some(Bytes::from_static(&large[..1024]));
    client.attempt(&row).await;
    assert_eq!(soon(&mut rx).await.body, &large[..1024]);
    let mut state = 1_u64;
    let noise: Bytes = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(5000)
    .collect();
    row.body = Some(noise.clone());
    client.attempt(&row).await;
    let request = soon(&mut rx).await;
    assert_eq!(
        (
            request.body.as_slice(),
            header(&request, "content-encoding").as_str()
        ),
        (&noise[..], "")
    );
    row.body = Some(Bytes::from_static(large));
    row.headers = vec![("Content-Encoding".into(), "br".into())];
    client.attempt(&row).await;
    let request = soon(&mut rx).await;
    assert_eq!(header(&request, "content-encoding"), "br");
    assert_eq!(request.body, large);
}
