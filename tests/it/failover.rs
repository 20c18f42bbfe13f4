//! The primary dies and a standby takes over; or the address leads to a standby for a while.
use std::time::Duration;

use outbox_relay::{
    lab::{
        cluster::{Cluster, Options},
        receiver::{Receiver, Reply},
    },
    store::Store,
};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::outage::{connect, messages, relays, started};
use crate::support::{
    binary::{Directory, outbox_relay},
    config, eventually,
    proxy::Proxy,
    relay::LEASE,
    rows::{SOON, all_settled, assert_nothing_left, count, insert, one},
    scene::Scene,
};

/// A primary with an outbox, and a standby that each commit waits for.
async fn pair() -> (Cluster, Cluster) {
    let mut primary = Cluster::start(Options::default()).await.unwrap();
    let store = Store::new(&config(&primary.url("postgres"))).unwrap();
    store.migrate(None, false).await.unwrap();
    drop(store);
    let standby = primary.standby().await.unwrap();
    let (client, _driver) = connect(&primary.url("postgres")).await;
    let set = "alter system set synchronous_standby_names = '*'";
    client.batch_execute(set).await.unwrap();
    let reload = "select pg_reload_conf()";
    client.batch_execute(reload).await.unwrap();
    let follows = "select exists (select from pg_stat_replication where sync_state = 'sync')";
    eventually("the standby follows", SOON, async || {
        one(&client, follows).await
    })
    .await;
    (primary, standby)
}

async fn promote(standby: &Cluster) {
    let (client, _driver) = connect(&standby.url("postgres")).await;
    assert!(one::<bool>(&client, "select pg_promote()").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_go_on_at_the_standby_that_takes_over_from_a_primary_that_was_killed() {
    let (mut primary, standby) = pair().await;
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(50))).unwrap();
    for attributes in ["", "?target_session_attrs=read-write"] {
        let url = format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres{attributes}",
            standby.port(),
            primary.port()
        );
        Store::new(&config(&url)).unwrap().check().await.unwrap();
    }
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres",
        primary.port(),
        standby.port()
    );
    let (client, driver) = connect(&primary.url("postgres")).await;
    let first = started(&url, &receiver, "first");
    let second = started(&url, &receiver, "second");
    eventually("both are registered", SOON, async || {
        relays(&client).await.len() == 2
    })
    .await;
    let before = relays(&client).await;
    insert(&client, "t", 1_000).await;
    receiver.wait_for(100, SOON).await.unwrap();
    primary.kill_hard().await.unwrap();
    drop((client, driver));

    let error = Store::new(&config(&url)).unwrap().check().await;
    let error = error.unwrap_err().to_string();
    let dead = format!("127.0.0.1:{} (database postgres): ", primary.port());
    let behind = format!(
        "127.0.0.1:{} (database postgres): this server is a standby (read-only)",
        standby.port()
    );
    assert!(error.contains(&dead) && error.ends_with(&behind), "{error}");

    // The passing of this time is what is tested: nobody is taken for dead for it.
    sleep(LEASE * 2).await;
    promote(&standby).await;
    let (client, _driver) = connect(&standby.url("postgres")).await;
    insert(&client, "t", 100).await;
    all_settled(&client, SOON).await;
    // One of them may have delivered all before the other looked again, which it does every few seconds.
    eventually("both have registered anew", SOON, async || {
        let after = relays(&client).await;
        after.len() == 2 && after.is_disjoint(&before)
    })
    .await;
    first.stop().await;
    second.stop().await;
    assert_eq!(messages(&receiver), 1_100);
    // What two relays may have had on their way, at most.
    assert!(receiver.count() <= 1_100 + 2 * 16, "{}", receiver.count());
    assert_eq!(count(&client, "attempts where outcome = 'lost'").await, 0);
    let ends = "select count(distinct id) from outbox.attempts where settlement = 'delivered'";
    assert_eq!(one::<i64>(&client, ends).await, 1_100);
    assert_nothing_left(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_finds_itself_on_a_standby_says_so_once_and_follows_its_address() {
    let (mut primary, standby) = pair().await;
    let (client, driver) = connect(&primary.url("postgres")).await;
    let proxy = Proxy::start(primary.port()).await;
    let url = proxy.url(&primary.url("postgres"));
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let path = directory.config(&receiver.url("/"), "");
    let mut relay = directory.run(&path, &url, "relay");
    insert(&client, "t", 10).await;
    all_settled(&client, SOON).await;
    let before = relays(&client).await;

    proxy.lead_to(standby.port());
    proxy.cut();
    let said = "nothing is delivered until the address of the database leads to a primary";
    eventually("it says so", SOON, async || relay.log().contains(said)).await;
    let place = format!("127.0.0.1:{} (database postgres)", proxy.port());
    let sentence = format!("this server is a standby (read-only): {place}");
    assert!(relay.log().contains(&sentence), "{}", relay.log());
    insert(&client, "t", 10).await;
    let tries = proxy.accepted();
    eventually("it tries again and again", SOON, async || {
        proxy.accepted() > tries + 20
    })
    .await;
    assert_eq!(relay.log().matches(said).count(), 1);
    // The renewal and the doorbell have something to say of their own.
    assert!(
        relay.log().matches(&sentence).count() <= 3,
        "{}",
        relay.log()
    );
    assert_eq!(receiver.count(), 10);

    // Who starts there is told the same, and ends.
    let config = path.to_str().unwrap();
    for command in ["check", "run"] {
        let ended = outbox_relay(&url, &[command, "--config", config]).await;
        assert_eq!(ended.status.code(), Some(3), "{command}");
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains(&sentence), "{command}: {said}");
    }
    let migrated = outbox_relay(&url, &["migrate"]).await;
    let told = String::from_utf8(migrated.stderr).unwrap();
    assert!(told.contains(&sentence), "{told}");

    // No connection is cut: it makes new ones by itself.
    proxy.lead_to(primary.port());
    all_settled(&client, SOON).await;
    assert_eq!(relays(&client).await, before, "it is the same registration");
    assert_eq!((receiver.count(), messages(&receiver)), (20, 20));

    // And it goes on where the standby becomes the primary.
    proxy.lead_to(standby.port());
    primary.kill_hard().await.unwrap();
    drop((client, driver));
    eventually("it says so again", SOON, async || {
        relay.log().matches(said).count() == 2
    })
    .await;
    promote(&standby).await;
    let (client, _driver) = connect(&standby.url("postgres")).await;
    insert(&client, "t", 10).await;
    all_settled(&client, SOON).await;
    relay.signal(Signal::TERM);
    assert_eq!(relay.end(SOON).await.code(), Some(0), "{}", relay.log());
    assert_eq!(messages(&receiver), 30);
    assert_nothing_left(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_silent_keeps_nobody_from_the_next_one() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let server: reqwest::Url = scene.database.url.parse().unwrap();
    let port = server.port().unwrap();
    // It takes connections and says nothing, for longer than a beat can wait.
    let silent = Proxy::start(port).await;
    silent.hole(true);
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{port}/{}?connect_timeout=3",
        silent.port(),
        scene.database.name
    );
    let relay = started(&url, &scene.receiver, "relay");
    let beats = "select coalesce(max(beat), 0) from outbox.relays";
    eventually("it beats", SOON, async || {
        one::<i64>(&scene.client, beats).await > 5
    })
    .await;
    insert(&scene.client, "t", 10).await;
    all_settled(&scene.client, SOON).await;
    assert!(silent.accepted() > 0, "the silent one was asked");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_by_hours_reaps_nobody_who_lives_and_hides_nobody_who_died() {
    let scene = Scene::new(|_| Reply::status(200).after(LEASE * 2)).await;
    // As if each beat came to a server whose clock is off by another number of hours.
    let jumps = "create sequence public.jumps;
        create function public.jump() returns trigger language plpgsql as $$
            begin
                new.beat_at := new.beat_at + (nextval('public.jumps') % 5 - 2) * interval '1 hour';
                return new;
            end $$;
        create trigger jump before insert or update on outbox.relays for each row execute function public.jump()";
    scene.client.batch_execute(jumps).await.unwrap();
    let (first, second) = (scene.start(), scene.start());
    eventually("both are registered", SOON, async || {
        relays(&scene.client).await.len() == 2
    })
    .await;
    let before = relays(&scene.client).await;
    insert(&scene.client, "t", 32).await;
    all_settled(&scene.client, SOON).await;
    assert_eq!(relays(&scene.client).await, before, "nobody was reaped");
    assert_eq!(scene.receiver.count(), 32);
    let far = "select bool_or(abs(extract(epoch from now() - beat_at)) > 3000) from outbox.relays";
    eventually("clocks are far off", SOON, async || {
        one(&scene.client, far).await
    })
    .await;

    drop(second);
    eventually("who died is reaped", SOON, async || {
        relays(&scene.client).await.len() == 1
    })
    .await;
    first.stop().await;
    assert_nothing_left(&scene.client).await;
}
