//! Signatures of attempts, and secrets that change.

use super::*;
use crate::delivery::{
    file::tests::Directory,
    sign::{
        Secret,
        tests::{FIRST, PRIVATE, SECOND},
    },
};

pub(super) fn header(request: &Request, name: &str) -> String {
    let lines = request.head.lines();
    let mut found = lines.filter_map(|line| line.strip_prefix(&format!("{name}: ")));
    found.next().unwrap_or_default().to_owned()
}

fn versions(request: &Request) -> Vec<String> {
    let all = header(request, "webhook-signature");
    let versions = all
        .split(' ')
        .filter_map(|one| Some(one.split_once(',')?.0));
    versions.map(String::from).collect()
}

#[tokio::test]
async fn each_attempt_has_its_own_time() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut endpoint = endpoint(&server.url);
    endpoint.sign.secrets = vec![
        Secret::parse(FIRST).unwrap(),
        Secret::parse(PRIVATE).unwrap(),
    ];
    let client = Client::new(&endpoint).unwrap();
    client.attempt(&delivery(Some(b"{}"))).await;
    let first = soon(&mut rx).await;
    assert_eq!(header(&first, "webhook-id"), delivery(None).id.to_string());
    assert_eq!(versions(&first), ["v1", "v1a"]);
    sleep(Duration::from_millis(1100)).await;
    client.attempt(&delivery(Some(b"{}"))).await;
    let second = soon(&mut rx).await;
    let [earlier, later] = [&first, &second]
        .map(|request| header(request, "webhook-timestamp").parse::<u64>().unwrap());
    assert!((earlier + 1..earlier + 10).contains(&later));
    assert_ne!(
        header(&first, "webhook-signature"),
        header(&second, "webhook-signature")
    );
}

#[tokio::test]
async fn secrets_in_files_are_renewed() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let directory = Directory::new();
    let mut endpoint = endpoint(&server.url);
    endpoint.sign.secret_files = vec![
        directory.write("old", &format!("# the old one\n{FIRST}\n\n")),
        directory.write("new", &format!("{SECOND}\n{FIRST}")),
    ];
    let client = Client::new(&endpoint).unwrap();
    let mut next = async || {
        client.attempt(&delivery(Some(b"{}"))).await;
        versions(&soon(&mut rx).await)
    };
    assert_eq!(next().await, ["v1", "v1", "v1"]);
    directory.write("old", PRIVATE);
    directory.write("new", "whsec_s3cret");
    sleep(Duration::from_millis(1100)).await;
    assert_eq!(next().await, ["v1a", "v1", "v1"]);
}

#[tokio::test]
async fn a_file_without_a_secret_stops_the_start() {
    let directory = Directory::new();
    for (text, want) in [
        ("", "/secret: holds no secret"),
        ("# none\n", "/secret: holds no secret"),
        (
            "\ns3cret",
            "/secret: line 2: a signing secret must begin with",
        ),
    ] {
        let mut endpoint = endpoint("http://127.0.0.1:9/");
        endpoint.sign.secret_files = vec![directory.write("secret", text)];
        let error = Client::new(&endpoint).err().unwrap().to_string();
        assert!(
            error.starts_with("endpoint test: sign.secret_files: /"),
            "{error}"
        );
        assert!(error.contains(want) && !error.contains("s3cret"), "{error}");
    }
}
