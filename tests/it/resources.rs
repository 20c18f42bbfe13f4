//! A host that has little left of something: nothing is lost, and nobody is blamed who is not to blame.

use std::time::Duration;

use outbox_relay::lab::receiver::{Options, Receiver, Reply};
use rustix::process::Signal;

use crate::support::{
    binary::Directory,
    database, eventually,
    relay::{endpoint, relay, routes, start},
    rows::{SOON, all_settled, count, insert, one},
};

/// Everything in the history that was no success, by outcome and settlement.
const FAILURES: &str =
    "select coalesce(string_agg(distinct outcome || ' ' || settlement, ', '), '')
                          from outbox.attempts where outcome <> 'success'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_descriptors_for_all_its_requests_a_relay_makes_fewer() {
    let database = database().await;
    let client = database.connect().await;
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(50))).unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), "");
    // The runtime, its log and the connections to the database take about twenty of them.
    let text = std::fs::read_to_string(&config).unwrap();
    directory.write(
        "relay.toml",
        &text.replace("concurrency = 4", "concurrency = 64"),
    );
    insert(&client, "t", 400).await;
    let relay = directory.run_with_descriptors(&config, &database.url, "relay", 40);
    all_settled(&client, SOON).await;
    assert_eq!(receiver.count(), 400, "nothing was sent twice");
    assert_eq!(count(&client, "dead_letters").await, 0);
    // It did run out: the others waited for a connection that was free.
    let failures: String = one(&client, FAILURES).await;
    assert_eq!(failures, "", "{}", relay.log());
    let most = receiver.most_in_flight();
    assert!((5..40).contains(&most), "{most} in flight");
}

/// What a container of 64 MiB needs: its share for payloads must be set below that, for a payload is in memory twice while it is
/// loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_of_ten_megabytes_fit_into_sixty_four_of_memory() {
    const COUNT: i32 = 40;
    let database = database().await;
    let client = database.connect().await;
    let options = Options {
        keep: 0,
        keep_bodies: false,
    };
    let receiver = Receiver::start_with(options, |_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), "memory = \"8MiB\"");
    let insert = "insert into outbox.messages (topic, body)
                  select 't', decode(repeat(md5(n::text), 10485760 / 16), 'hex') from generate_series(1, $1::int) n";
    client.execute(insert, &[&COUNT]).await.unwrap();
    // Large buffers go back to the system as soon as they are free: see the README.
    let economical = ("MALLOC_MMAP_THRESHOLD_", "131072");
    let relay = directory.run_with(&config, &database.url, "relay", economical);
    all_settled(&client, Duration::from_secs(120)).await;
    assert_eq!(receiver.count(), 40);
    let peak = relay.peak() >> 20;
    // Of the 64, as much as a release has of code.
    assert!(peak < 56, "{peak} MiB");
    assert_eq!(one::<String>(&client, FAILURES).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_leads_nowhere_holds_up_no_other_and_kills_no_message() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let mut both = relay(&database.url, endpoint("shop", &receiver.url("/")));
    both.endpoints
        .push(endpoint("gone", "http://nowhere.invalid/"));
    both.routes = routes(&[("t", "shop"), ("gone", "gone")]);
    insert(&client, "gone", 100).await;
    let running = start(both);
    eventually("its messages were tried", SOON, async || {
        count(&client, "attempts where endpoint = 'gone'").await > 0
    })
    .await;
    insert(&client, "t", 300).await;
    receiver.wait_for(300, SOON).await.unwrap();
    running.stop().await;
    assert_eq!(count(&client, "messages where topic = 'gone'").await, 100);
    assert_eq!(count(&client, "dead_letters").await, 0);
    let failures: String = one(&client, FAILURES).await;
    // Where the resolver itself is silent it is a time-out.
    let known = ["dns retry", "connect_timeout retry"];
    let mut all = failures.split(", ");
    assert!(all.all(|one| known.contains(&one)), "{failures}");
}

/// As a container runs it: nobody, no privilege, a root that can't be written to.
#[tokio::test]
async fn a_relay_needs_no_rights_and_writes_no_file() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), "[http]\nlisten = \"127.0.0.1:0\"");
    insert(&client, "t", 10).await;
    let mut relay = directory.run_confined(&config, &database.url, "relay");
    all_settled(&client, SOON).await;
    let status = relay.status();
    for line in [
        "Uid:\t65534\t65534",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        assert!(status.contains(line), "{line}: {status}");
    }
    relay.signal(Signal::TERM);
    assert!(relay.end(SOON).await.success(), "{}", relay.log());
}
