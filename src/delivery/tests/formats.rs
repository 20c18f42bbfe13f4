//! Methods, URLs and headers as a receiver sees them.

use super::{signing::header, *};
use crate::delivery::{file::tests::Directory, format::Shape};

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
        directory.write("key", "one two\n"),
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
    assert_eq!(header(&request, "x-api-key"), "one two");
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
