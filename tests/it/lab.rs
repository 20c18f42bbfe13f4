//! The parts that the other tests are built on do what they say.
use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use outbox_relay::lab::{
    cluster::{self, Cluster, Stop},
    receiver::{self, Receiver, Reply},
};
use tokio::time::Instant;
use tokio_postgres::{NoTls, SimpleQueryMessage, connect, error::SqlState};

use crate::support::{client, database, eventually};

const SOON: Duration = Duration::from_secs(10);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

// === the receiver ===

#[tokio::test]
async fn receiver_answers_on_script_and_remembers() {
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::status(503).header("retry-after", "7").body("later"),
        _ => Reply::status(200),
    })
    .unwrap();

    let post = client()
        .post(receiver.url("/hooks?x=1"))
        .header("Idempotency-Key", "k1")
        .body("{}");
    let first = post.try_clone().unwrap().send().await.unwrap();
    assert_eq!(first.status(), 503);
    assert_eq!(first.headers()["retry-after"], "7");
    assert_eq!(first.content_length(), Some(5));
    assert_eq!(first.bytes().await.unwrap(), "later");
    assert_eq!(post.send().await.unwrap().status(), 200);

    let requests = receiver.requests();
    assert_eq!((receiver.count(), requests.len()), (2, 2));
    assert_eq!((requests[0].number, requests[1].number), (1, 2));
    assert_eq!(requests[0].method, "POST");
    assert_eq!(requests[0].path, "/hooks?x=1");
    assert_eq!(requests[0].header("idempotency-key"), Some("k1"));
    assert_eq!(requests[0].header("absent"), None);
    assert_eq!(requests[0].body, "{}");
    assert!(requests[0].at <= requests[1].at);
}

#[tokio::test]
async fn receiver_hangs_up_without_an_answer() {
    let receiver = Receiver::start(|_| Reply::hang_up()).unwrap();
    let error = client().get(receiver.url("/")).send().await.unwrap_err();
    assert!(error.is_request(), "{error:?}");
    assert!(
        format!("{error:?}").contains("IncompleteMessage"),
        "{error:?}"
    );
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn receiver_resets_after_headers_and_body() {
    let receiver = Receiver::start(|request| match request.path.as_str() {
        "/body" => Reply::status(200).body("half").reset(),
        _ => Reply::status(202).reset(),
    })
    .unwrap();

    let client = client();
    let mut answer = client.get(receiver.url("/body")).send().await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "half");
    let error = answer.chunk().await.unwrap_err();
    assert!(
        format!("{error:?}").contains("ConnectionReset"),
        "{error:?}"
    );

    for _ in 0..100 {
        let answer = client.get(receiver.url("/")).send().await.unwrap();
        assert_eq!(answer.status(), 202);
        assert!(answer.bytes().await.is_err());
    }
    assert_eq!(receiver.in_flight(), 0);
}

#[tokio::test]
async fn receiver_drips_and_delays() {
    let receiver = Receiver::start(|request| match request.path.as_str() {
        "/drip" => Reply::status(200).body("abc").drip(ms(50)),
        _ => Reply::status(200).after(ms(100)),
    })
    .unwrap();

    let start = Instant::now();
    let answer = client().get(receiver.url("/drip")).send().await.unwrap();
    assert_eq!(answer.content_length(), Some(3));
    assert_eq!(answer.bytes().await.unwrap(), "abc");
    assert!(start.elapsed() >= ms(150), "{:?}", start.elapsed());

    let start = Instant::now();
    client().get(receiver.url("/")).send().await.unwrap();
    assert!(start.elapsed() >= ms(100), "{:?}", start.elapsed());
}

#[tokio::test]
async fn receiver_leaves_clients_waiting_and_sees_them_leave() {
    let receiver = Receiver::start(|_| Reply::never()).unwrap();
    let missing = receiver.wait_for(1, ms(20)).await.unwrap_err();
    assert_eq!((missing.wanted, missing.count), (1, 0));

    let client = client();
    let get = || client.get(receiver.url("/")).send();
    tokio::select! {
        _ = async { tokio::join!(get(), get(), get()) } => panic!("it never answers"),
        came = receiver.wait_for(3, SOON) => came.unwrap(),
    }
    assert_eq!((receiver.in_flight(), receiver.connections()), (3, 3));
    let mut connections: Vec<u64> = receiver.requests().iter().map(|r| r.connection).collect();
    connections.sort_unstable();
    assert_eq!(connections, [1, 2, 3]);

    let empty = async || receiver.in_flight() == 0;
    eventually("the requests are given up", SOON, empty).await;
    assert_eq!(receiver.most_in_flight(), 3);
}

#[tokio::test]
async fn receiver_has_no_more_in_flight_than_the_client() {
    let receiver = Receiver::start(|request| match request.number % 2 {
        0 => Reply::status(204),
        _ => Reply::status(200).body("ok").drip(ms(1)),
    })
    .unwrap();
    let client = client();
    for _ in 0..200 {
        let answer = client.get(receiver.url("/")).send().await.unwrap();
        answer.bytes().await.unwrap();
    }
    assert_eq!((receiver.most_in_flight(), receiver.in_flight()), (1, 0));
}

#[tokio::test]
async fn receiver_keeps_what_it_is_told_to() {
    let options = receiver::Options {
        keep: 1,
        keep_bodies: false,
    };
    let receiver = Receiver::start_with(options, |request| {
        Reply::status(200).body(request.body.clone())
    })
    .unwrap();
    for _ in 0..2 {
        let post = client().post(receiver.url("/")).body("seen").send();
        assert_eq!(post.await.unwrap().bytes().await.unwrap(), "seen");
    }
    assert_eq!((receiver.count(), receiver.requests().len()), (2, 1));
    assert!(receiver.requests()[0].body.is_empty());
}

#[tokio::test]
async fn receiver_stops_and_comes_back_on_its_port() {
    let mut receiver = Receiver::start(|_| Reply::never()).unwrap();
    let client = client();
    let get = client.get(receiver.url("/")).send();
    let stop = async {
        receiver.wait_for(1, SOON).await.unwrap();
        receiver.stop().await;
    };
    let (answer, ()) = tokio::join!(get, stop);
    assert!(answer.is_err(), "a stop cuts what is in flight");
    let refused = client.get(receiver.url("/")).send().await.unwrap_err();
    assert!(refused.is_connect(), "{refused:?}");
    assert_eq!(receiver.requests().len(), 1, "the record stays");

    let again = Receiver::start_on(receiver.port(), |_| Reply::status(200)).unwrap();
    let answer = client.get(receiver.url("/")).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), again.count()), (200, 1));
}

// === the cluster ===

#[tokio::test]
async fn cluster_survives_kills_and_leaves_nothing_behind() {
    let mut cluster = Cluster::start(cluster::Options {
        settings: vec![("max_connections".into(), "17".into())],
        ..cluster::Options::default()
    })
    .await
    .unwrap();
    let url = cluster.url("postgres");
    assert_eq!(ask(&url, "show max_connections").await, "17");
    assert_eq!(ask(&url, "show fsync").await, "off");
    ask(&url, "create table kept (); select").await;

    for _ in 0..3 {
        ask(&url, "insert into kept default values; select").await;
        let before = cluster.pid().unwrap();
        cluster.kill_hard().await.unwrap();
        assert_eq!(cluster.pid(), None);
        assert!(connect(&url, NoTls).await.is_err());
        cluster.restart().await.unwrap();
        assert_ne!(cluster.pid(), Some(before));
    }
    for how in [Stop::Fast, Stop::Immediate] {
        ask(&url, "insert into kept default values; select").await;
        cluster.stop(how).await.unwrap();
        assert!(connect(&url, NoTls).await.is_err());
        cluster.restart().await.unwrap();
    }
    cluster.restart().await.unwrap();
    assert_eq!(ask(&url, "select count(*) from kept").await, "5");

    assert!(cluster.log_path().is_file());
    let dir = cluster.socket_dir().to_owned();
    assert!(dir.join(format!(".s.PGSQL.{}", cluster.port())).exists());
    drop(cluster);
    assert!(!dir.exists());
    assert!(connect(&url, NoTls).await.is_err());
}

#[tokio::test]
async fn cluster_restarts_beside_a_backend_that_has_not_noticed() {
    let mut cluster = Cluster::start(cluster::Options::default()).await.unwrap();
    let url = cluster.url("postgres");
    // It misses its postmaster only when it has something to wait for.
    let busy = "select count(*) from generate_series(1, 5000000)";
    let works = "select count(*) from pg_stat_activity \
                 where query like '%generate_series%' and pid <> pg_backend_pid()";
    tokio::select! {
        _ = ask(&url, busy) => panic!("it was to be busy for longer"),
        () = eventually("it works", SOON, async || ask(&url, works).await == "1") => {}
    }
    cluster.kill_hard().await.unwrap();
    cluster.restart().await.unwrap();
    assert_eq!(ask(&url, "select 1").await, "1");
    let log = fs::read_to_string(cluster.log_path()).unwrap();
    assert!(
        log.contains("is still in use"),
        "it was not in the way: {log}"
    );
}

#[tokio::test]
async fn cluster_says_why_it_does_not_start() {
    let start = async |bin_dir: Option<&str>, name: &str, value: &str| {
        let options = cluster::Options {
            bin_dir: bin_dir.map(Into::into),
            settings: vec![(name.to_owned(), value.to_owned())],
            ..cluster::Options::default()
        };
        Cluster::start(options).await.unwrap_err().to_string()
    };
    let error = start(None, "shared_buffers", "plenty").await;
    assert!(error.contains("invalid value for parameter"), "{error}");
    let error = start(Some("/dev"), "fsync", "off").await;
    assert!(error.starts_with("/dev doesn't hold initdb"), "{error}");
}

#[tokio::test]
async fn cluster_ends_with_an_owner_that_is_killed() {
    let mut owner = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "lab::owner_of_a_cluster"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let line = lines
        .map(Result::unwrap)
        .find(|line| line.starts_with("postgres://"));
    let line = line.unwrap();
    let (url, dir) = line.split_once(' ').unwrap();
    assert_eq!(ask(url, "select 1").await, "1");

    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("the directory is gone", SOON, async || {
        !Path::new(dir).exists()
    })
    .await;
    assert!(connect(url, NoTls).await.is_err());
}

#[tokio::test]
#[ignore = "the process that cluster_ends_with_an_owner_that_is_killed kills"]
async fn owner_of_a_cluster() {
    let cluster = Cluster::start(cluster::Options::default()).await.unwrap();
    let (url, dir) = (cluster.url("postgres"), cluster.socket_dir());
    // Not `println!`, which the test harness would hold back.
    writeln!(io::stdout(), "\n{url} {}", dir.display()).unwrap();
    io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
}

/// The first value of the first row, on a connection of its own.
async fn ask(url: &str, sql: &str) -> String {
    let (client, connection) = connect(url, NoTls).await.unwrap();
    let answer = tokio::select! {
        answer = client.simple_query(sql) => answer.unwrap(),
        _ = connection => panic!("the server hung up"),
    };
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let value = row.filter(|row| !row.is_empty()).and_then(|row| row.get(0));
    value.unwrap_or_default().to_owned()
}

// === what the tests share ===

#[tokio::test]
async fn databases_are_apart_and_dropped() {
    let (one, other) = (database().await, database().await);
    let client = one.connect().await;
    client.batch_execute("create table t ()").await.unwrap();
    let error = other.connect().await.query("table t", &[]).await;
    assert_eq!(error.unwrap_err().code(), Some(&SqlState::UNDEFINED_TABLE));

    let there = async |name: &str| {
        let find = "select from pg_database where datname = $1";
        let found = client.query_opt(find, &[&name]).await;
        found.unwrap().is_some()
    };
    let name = other.name.clone();
    assert!(there(&name).await);
    drop(other);
    assert!(!there(&name).await);
}
