//! Who we are to a receiver.

use super::{signing::header, *};
use crate::delivery::file::tests::Directory;

#[tokio::test]
async fn a_token_that_is_replaced_is_the_one_that_is_sent() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let directory = Directory::new();
    let mut endpoint = endpoint(&server.url);
    endpoint.auth = auth::Config::Bearer {
        file: directory.write("token", "one"),
    };
    let client = Client::new(&endpoint).unwrap();
    let mut next = async || {
        client.attempt(&delivery(Some(b"{}"))).await;
        header(&soon(&mut rx).await, "authorization")
    };
    assert_eq!(next().await, "Bearer one");
    directory.write("token", "two\n");
    sleep(Duration::from_millis(1100)).await;
    assert_eq!(next().await, "Bearer two");

    // And no row can be somebody else.
    let mut bad = delivery(Some(b"{}"));
    bad.headers = vec![("Authorization".into(), "Bearer mine".into())];
    let outcome = client.attempt(&bad).await;
    assert_eq!(outcome.class, Class::Unsendable);
    assert_eq!(
        outcome.error.unwrap(),
        "header \"Authorization\" is one that the endpoint sets"
    );
}
