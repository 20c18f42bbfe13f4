//! TLS to PostgreSQL: who is trusted, who is refused and in which words, and files that change.
use std::{path::Path, time::Duration};

use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    store::{self, Store},
};

use crate::support::{
    binary::{Directory, outbox_relay},
    config, eventually,
    relay::{endpoint, relay, start},
    rows::{SOON, all_settled, insert},
    secure::{Ca, Secure},
};

/// A store at this URL that trusts what a file holds.
fn store(url: &str, ca_file: Option<&Path>) -> Store {
    let config = store::Config {
        ca_file: ca_file.map(Into::into),
        ..config(url)
    };
    Store::single(&config, Duration::from_secs(20)).unwrap()
}

/// Why it can't be used.
async fn refused(store: &Store) -> String {
    store.version().await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_delivers_over_tls_from_a_server_that_a_private_authority_vouches_for() {
    let (server, ca, directory) = (Secure::start().await, Ca::new(), Directory::new());
    server.show(&ca.issue("localhost")).await;
    let file = directory.write("ca.pem", &ca.pem);
    let url = server.url("postgres", "localhost", "sslmode=verify-full");
    store(&url, Some(&file)).migrate(None, false).await.unwrap();
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let mut secure = relay(&url, endpoint("shop", &receiver.url("/")));
    secure.database.ca_file = Some(file);
    let relay = start(secure);
    insert(&server.admin, "t", 100).await;
    all_settled(&server.admin, SOON).await;
    let sessions = "select count(*) filter (where ssl), count(*) filter (where not ssl) from pg_stat_ssl join pg_stat_activity using (pid)
                     where application_name like 'outbox-relay%'";
    // Claims, settles and beats; and two of the doorbell.
    eventually("five sessions are there, all with TLS", SOON, async || {
        let row = server.admin.query_one(sessions, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1)) == (5, 0)
    })
    .await;
    relay.stop().await;
    assert_eq!(receiver.count(), 100);
}

#[tokio::test]
async fn each_reason_to_refuse_a_server_is_said_with_its_host() {
    let (server, ca, directory) = (Secure::start().await, Ca::new(), Directory::new());
    let right = directory.write("right.pem", &ca.pem);
    let wrong = directory.write("wrong.pem", &Ca::new().pem);
    let at = |host: &str| format!("{host}:{} (database postgres): ", server.cluster.port());
    let trying = async |host: &str, query: &str, ca: &Path| {
        let url = server.url("postgres:hunter2", host, query);
        let error = refused(&store(&url, Some(ca))).await;
        // Where the name has two addresses, each has its reason.
        let one = error.replace("[127.0.0.1]", "");
        assert!(one.contains(&at(host)), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        error
    };

    for mode in ["require", "verify-ca", "verify-full"] {
        let error = trying("localhost", &format!("sslmode={mode}"), &right).await;
        assert!(
            error.ends_with("server does not support TLS"),
            "{mode}: {error}"
        );
    }

    server.show(&ca.issue("localhost")).await;
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let error = trying("localhost", &format!("sslmode={mode}"), &wrong).await;
        let want = format!("UnknownIssuer; trusted is what {} holds", wrong.display());
        assert!(error.ends_with(&want), "{mode}: {error}");
    }
    let error = trying("127.0.0.1", "sslmode=verify-full", &right).await;
    assert!(
        error.contains("not valid for name \"127.0.0.1\""),
        "{error}"
    );
    assert!(error.contains("\"localhost\""), "{error}");
    // Asked for no name, it is content with any, as libpq is.
    for query in ["sslmode=verify-ca", "sslmode=require"] {
        let url = server.url("postgres", "127.0.0.1", query);
        store(&url, Some(&right)).version().await.unwrap();
    }

    let url = server.url("postgres", "localhost", "sslmode=verify-full");
    let error = refused(&store(&url, None)).await;
    assert!(
        error.contains("UnknownIssuer"),
        "the system's authorities don't know ours: {error}"
    );

    server.show(&ca.issue_expired("localhost")).await;
    for mode in ["verify-ca", "verify-full"] {
        let error = trying("localhost", &format!("sslmode={mode}"), &right).await;
        assert!(error.contains("certificate expired"), "{mode}: {error}");
    }
    let url = server.url("postgres", "localhost", "sslmode=require");
    store(&url, None).version().await.unwrap();
}

#[tokio::test]
async fn a_server_may_be_its_own_authority() {
    let (server, directory) = (Secure::start().await, Directory::new());
    let pair = Ca::itself("localhost");
    server.show(&pair).await;
    let file = directory.write("server.crt", &pair.cert);
    let at = |host: &str, mode: &str| {
        store(
            &server.url("postgres", host, &format!("sslmode={mode}")),
            Some(&file),
        )
    };
    at("localhost", "verify-full").version().await.unwrap();
    at("127.0.0.1", "verify-ca").version().await.unwrap();
    let error = refused(&at("127.0.0.1", "verify-full")).await;
    assert!(
        error.contains("not valid for name \"127.0.0.1\""),
        "{error}"
    );
    // Another one of that name is another one, and its time can be over.
    server.show(&Ca::itself("localhost")).await;
    for mode in ["verify-ca", "verify-full"] {
        let error = refused(&at("localhost", mode)).await;
        assert!(
            error.contains("invalid peer certificate"),
            "{mode}: {error}"
        );
    }
    let expired = Ca::itself_expired("localhost");
    server.show(&expired).await;
    directory.write("server.crt", &expired.cert);
    for mode in ["verify-ca", "verify-full"] {
        let error = refused(&at("localhost", mode)).await;
        assert!(error.contains("certificate expired"), "{mode}: {error}");
    }
}

#[tokio::test]
async fn the_words_of_libpq_name_the_authority_in_the_url_and_the_binary_understands_them() {
    let (server, ca, directory) = (Secure::start().await, Ca::new(), Directory::new());
    server.show(&ca.issue("localhost")).await;
    let right = directory.write("right.pem", &ca.pem);
    let wrong = directory.write("wrong.pem", &Ca::new().pem);
    let query = |file: &Path| format!("sslmode=verify-full&sslrootcert={}", file.display());
    let url = server.url("postgres", "localhost", &query(&right));
    let migrated = outbox_relay(&url, &["migrate"]).await;
    assert!(migrated.status.success(), "{migrated:?}");
    let pairs = format!(
        "host=localhost port={} user=postgres dbname=postgres sslmode=verify-ca sslrootcert='{}'",
        server.cluster.port(),
        right.display()
    );
    let checked = outbox_relay(&pairs, &["status"]).await;
    assert!(checked.status.success(), "{checked:?}");

    let url = server.url("postgres:hunter2", "localhost", &query(&wrong));
    let refused = outbox_relay(&url, &["status"]).await;
    assert_eq!(refused.status.code(), Some(3));
    let said = String::from_utf8(refused.stderr).unwrap();
    let place = format!("localhost:{} (database postgres)", server.cluster.port());
    assert!(
        said.replace("[127.0.0.1]", "").contains(&place) && said.contains("UnknownIssuer"),
        "{said}"
    );
    assert!(!said.contains("hunter2"), "{said}");

    let url = server.url("postgres", "localhost", &query(Path::new("/no/such/file")));
    let refused = outbox_relay(&url, &["status"]).await;
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("/no/such/file"), "{said}");
}

#[tokio::test]
async fn an_authority_that_is_renewed_serves_new_connections() {
    let (server, old, new) = (Secure::start().await, Ca::new(), Ca::new());
    let directory = Directory::new();
    server.show(&old.issue("localhost")).await;
    let file = directory.write("ca.pem", &old.pem);
    let url = server.url("postgres", "localhost", "sslmode=verify-full");
    let store = store(&url, Some(&file));
    store.version().await.unwrap();

    server.show(&new.issue("localhost")).await;
    store.version().await.unwrap();
    store.disconnect();
    assert!(refused(&store).await.contains("UnknownIssuer"));
    directory.write("ca.pem", &new.pem);
    store.version().await.unwrap();

    // Something else in its place changes nothing.
    directory.write("ca.pem", "nonsense");
    store.disconnect();
    store.version().await.unwrap();
    std::fs::remove_file(&file).unwrap();
    store.disconnect();
    store.version().await.unwrap();
}

#[tokio::test]
async fn a_password_is_bound_to_the_channel() {
    let (server, ca, directory) = (Secure::start().await, Ca::new(), Directory::new());
    let role = "create role bound login superuser password 'hunter2'";
    server.admin.batch_execute(role).await.unwrap();
    server
        .hba("host all bound 127.0.0.1/32 scram-sha-256")
        .await;
    let file = directory.write("ca.pem", &ca.pem);
    let bound = |query: &str| {
        let query = format!("channel_binding=require&{query}");
        store(
            &server.url("bound:hunter2", "localhost", &query),
            Some(&file),
        )
    };
    let error = refused(&bound("sslmode=prefer")).await;
    assert!(
        error.contains("channel_binding=require needs TLS"),
        "{error}"
    );
    assert!(
        error.contains("localhost") && !error.contains("hunter2"),
        "{error}"
    );
    server.show(&ca.issue("localhost")).await;
    bound("sslmode=verify-full").version().await.unwrap();
    let error = refused(&bound("sslmode=disable")).await;
    assert!(
        error.contains("channel_binding=require needs TLS"),
        "{error}"
    );
    // What is kept as MD5 can't be bound.
    let role = "set password_encryption = 'md5'; alter role bound password 'hunter2'; reset password_encryption";
    server.admin.batch_execute(role).await.unwrap();
    server.hba("host all bound 127.0.0.1/32 md5").await;
    let error = refused(&bound("sslmode=verify-full")).await;
    assert!(error.contains("kept as SCRAM-SHA-256"), "{error}");
    let plain = server.url("bound:wrong", "localhost", "sslmode=verify-full");
    let error = refused(&store(&plain, Some(&file))).await;
    assert!(
        error.contains("password authentication failed for user \"bound\""),
        "{error}"
    );
    assert!(
        !error.contains("wrong\"") && !error.contains(":wrong"),
        "{error}"
    );
}

#[tokio::test]
async fn a_client_certificate_is_shown_and_renewed() {
    let (server, ca, clients) = (Secure::start().await, Ca::new(), Ca::new());
    let directory = Directory::new();
    server.show(&ca.issue("localhost")).await;
    let known = server.write("clients.pem", &clients.pem);
    server.set("ssl_ca_file", known.to_str().unwrap()).await;
    let role = "create role shown login superuser";
    server.admin.batch_execute(role).await.unwrap();
    server.hba("hostssl all shown 127.0.0.1/32 cert").await;
    let authority = directory.write("ca.pem", &ca.pem);
    let without = server.url("shown", "localhost", "sslmode=verify-full");
    let error = refused(&store(&without, Some(&authority))).await;
    assert!(
        error.contains("requires a valid client certificate"),
        "{error}"
    );

    let write = |name: &str| {
        let pair = clients.issue(name);
        (
            directory.write("client.crt", &pair.cert),
            directory.write("client.key", &pair.key),
        )
    };
    let (cert, key) = write("shown");
    let with = format!(
        "{without}&sslcert={}&sslkey={}",
        cert.display(),
        key.display()
    );
    let mine = store(&with, Some(&authority));
    mine.version().await.unwrap();
    write("somebody else");
    mine.disconnect();
    let error = refused(&mine).await;
    assert!(
        error.contains("certificate authentication failed for user \"shown\""),
        "{error}"
    );
    write("shown");
    mine.version().await.unwrap();

    // A certificate whose key is another's is not used.
    directory.write("client.key", &clients.issue("shown").key);
    mine.disconnect();
    mine.version().await.unwrap();
    let config = store::Config {
        ca_file: Some(authority),
        ..config(&with)
    };
    let error = Store::new(&config).err().unwrap().to_string();
    let want = format!(
        "sslkey {}: is not the key of the certificate in {}",
        key.display(),
        cert.display()
    );
    assert!(error.contains(&want), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("postgres://app:hunter2@127.0.0.1:{port},127.0.0.1:{port}");
    let error = refused(&store(&url, None)).await;
    let one = format!(
        "127.0.0.1:{port} (database app): error connecting to server: Connection refused (os error 111)"
    );
    assert_eq!(
        error,
        format!("can't connect to the database: {one}; {one}")
    );
    let socket = format!("host=/no/such port={port} user=app");
    let error = refused(&store(&socket, None)).await;
    assert!(
        error.contains(&format!("/no/such/.s.PGSQL.{port} (database app): ")),
        "{error}"
    );
}
