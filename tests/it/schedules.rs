//! Messages that come by the clock: each fire time has one, over all relays.
use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    maintenance::schedules::run_once,
    schedule::{Due, Missed, Schedule, Times},
};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    outbox::Outbox,
    support::{
        binary::{Directory, outbox_relay},
        database, eventually,
        rows::{SOON, count, one},
    },
};

pub(crate) fn schedule(name: &str, cron: &str, missed: Missed) -> Schedule {
    let times = Times::new(cron, Times::zone("UTC").unwrap()).unwrap();
    Schedule {
        name: name.into(),
        times,
        missed,
        topic: "t".into(),
        key: Some("k".into()),
        kind: Some("nightly".into()),
        payload: Some("{\"n\": 1.10}".into()),
        headers: json!({ "X-A": "1" }),
    }
}

/// It fired for the last time so long ago.
async fn age(outbox: &Outbox, name: &str, ago: &str) {
    outbox
        .run(&format!(
            "update outbox.schedules set fired_at = date_trunc('hour', now()) - interval '{ago}' where name = '{name}'"
        ))
        .await;
}

#[tokio::test]
async fn of_many_who_see_the_same_fire_time_one_inserts() {
    let outbox = Outbox::new().await;
    let one = schedule("s", "0 * * * *", Missed::Once);
    outbox.store.add_schedules(&["s"]).await.unwrap();
    age(&outbox, "s", "3 hours").await;
    let (now, fired) = outbox.store.schedules(&["s"]).await.unwrap();
    let seen = fired["s"];
    let due = one.due(seen, now).unwrap();
    let stores: Vec<_> = (0..8).map(|_| outbox.database.store()).collect();
    let all = stores.iter().map(|store| store.fire(&one, seen, &due));
    let all = futures_util::future::join_all(all).await;
    let fired: Vec<i32> = all.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(fired, [1]);
    assert_eq!(count(&outbox.client, "messages").await, 1);

    // Nor does who is late.
    assert_eq!(outbox.store.fire(&one, seen, &due).await.unwrap(), None);
    let (_, fired) = outbox.store.schedules(&["s"]).await.unwrap();
    assert_eq!(fired["s"], due.until);
}

/// Whoever has the row's lock and is not done yet holds up nobody, and whoever dies with it leaves the fire time to others.
#[tokio::test]
async fn nobody_waits_for_the_one_who_inserts() {
    let outbox = Outbox::new().await;
    let one = schedule("s", "0 * * * *", Missed::Once);
    outbox.store.add_schedules(&["s"]).await.unwrap();
    age(&outbox, "s", "1 hour").await;
    let other = outbox.database.connect().await;
    other
        .batch_execute("begin; select from outbox.schedules for update")
        .await
        .unwrap();
    run_once(&outbox.store, std::slice::from_ref(&one))
        .await
        .unwrap();
    assert_eq!(count(&outbox.client, "messages").await, 0);
    other.batch_execute("rollback").await.unwrap();
    run_once(&outbox.store, &[one]).await.unwrap();
    assert_eq!(count(&outbox.client, "messages").await, 1);
}

#[tokio::test]
async fn a_fire_time_that_the_databases_clock_has_not_reached_is_nobodys() {
    let outbox = Outbox::new().await;
    let one = schedule("s", "0 * * * *", Missed::Once);
    outbox.store.add_schedules(&["s"]).await.unwrap();
    let (now, fired) = outbox.store.schedules(&["s"]).await.unwrap();
    let early = now + SignedDuration::from_secs(60);
    let due = Due {
        until: early,
        times: vec![early],
    };
    assert_eq!(
        outbox.store.fire(&one, fired["s"], &due).await.unwrap(),
        None
    );
    assert_eq!(count(&outbox.client, "messages").await, 0);
}

#[tokio::test]
async fn a_schedule_that_is_new_fires_from_now_on_and_one_that_missed_makes_up() {
    let outbox = Outbox::new().await;
    let all = [
        schedule("all", "0 * * * *", Missed::All(10)),
        schedule("few", "0 * * * *", Missed::All(2)),
        schedule("once", "0 * * * *", Missed::Once),
    ];
    let wait = run_once(&outbox.store, &all).await.unwrap();
    assert!(wait <= Duration::from_secs(60));
    run_once(&outbox.store, &all).await.unwrap();
    let before = "messages where (headers->>'Schedule-Time')::timestamptz <= (select min(created_at) from outbox.schedules)";
    assert_eq!(count(&outbox.client, before).await, 0);
    outbox.run("delete from outbox.messages").await;

    for name in ["all", "few", "once"] {
        age(&outbox, name, "5 hours").await;
    }
    run_once(&outbox.store, &all).await.unwrap();
    run_once(&outbox.store, &all).await.unwrap();
    let made: Vec<String> = outbox
        .all(
            "select headers->>'Schedule-Name' || ' ' || count(distinct headers->>'Schedule-Time') || ' ' || count(*)
               from outbox.messages group by headers->>'Schedule-Name' order by 1",
            &[],
        )
        .await;
    // The last one may be in time, and the hour may be over by now.
    assert!(["all 5 5", "all 6 6"].contains(&&*made[0]), "{made:?}");
    assert!(["few 2 2", "few 3 3"].contains(&&*made[1]), "{made:?}");
    assert_eq!(made[2], "once 1 1");
    let rest = "select bool_and(topic = 't' and key = 'k' and type = 'nightly' and payload::text = '{\"n\": 1.10}' and headers->>'X-A' = '1'
                                and (headers->>'Schedule-Time')::timestamptz = date_trunc('hour', (headers->>'Schedule-Time')::timestamptz))
                  from outbox.messages";
    assert!(one::<bool>(&outbox.client, rest).await);
    let newest = "select max((headers->>'Schedule-Time')::timestamptz) = date_trunc('hour', max(fired_at)) from outbox.messages, outbox.schedules";
    assert!(one::<bool>(&outbox.client, newest).await);
}

#[tokio::test]
async fn one_that_cannot_be_inserted_holds_up_no_other() {
    let outbox = Outbox::new().await;
    let mut all = [
        schedule("a", "0 * * * *", Missed::Once),
        schedule("b", "0 * * * *", Missed::Once),
    ];
    all[0].headers = json!({ "X-A": "x".repeat(20_000) });
    outbox.store.add_schedules(&["a", "b"]).await.unwrap();
    age(&outbox, "a", "1 hour").await;
    age(&outbox, "b", "1 hour").await;
    let wait = run_once(&outbox.store, &all).await.unwrap();
    assert!(wait <= Duration::from_secs(15), "it is tried again soon");
    let made = "select string_agg(headers->>'Schedule-Name', ',') from outbox.messages";
    assert_eq!(one::<String>(&outbox.client, made).await, "b");
    // It is made up for when it can be.
    all[0].headers = json!({});
    run_once(&outbox.store, &all).await.unwrap();
    assert_eq!(count(&outbox.client, "messages").await, 2);
}

#[tokio::test]
async fn what_is_missed_can_be_left_out() {
    let outbox = Outbox::new().await;
    let skip = [schedule("skip", "0 0 1 1 *", Missed::Skip)];
    outbox.store.add_schedules(&["skip"]).await.unwrap();
    outbox
        .run("update outbox.schedules set fired_at = now() - interval '5 years'")
        .await;
    run_once(&outbox.store, &skip).await.unwrap();
    assert_eq!(count(&outbox.client, "messages").await, 0);
    let (now, fired) = outbox.store.schedules(&["skip"]).await.unwrap();
    let year = now.duration_since(fired["skip"]);
    assert!(year < SignedDuration::from_hours(367 * 24), "it is decided");
}

/// Each second has one message, and none is left out, while two relays run and one of them is killed.
#[tokio::test]
async fn relays_share_the_fire_times_and_take_over_from_each_other() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let more = "[[schedules]]\nname = \"tick\"\ncron = \"* * * * * *\"\ntopic = \"tick\"\nmissed = \"all\"\n";
    let config = directory.config(&receiver.url("/"), more);
    let one = directory.run(&config, &database.url, "one");
    let _two = directory.run(&config, &database.url, "two");
    receiver.wait_for(3, SOON).await.unwrap();
    one.signal(Signal::KILL);
    receiver.wait_for(receiver.count() + 4, SOON).await.unwrap();

    let mut seen: BTreeMap<Timestamp, BTreeMap<String, u32>> = BTreeMap::new();
    for request in receiver.requests() {
        assert_eq!(request.header("schedule-name"), Some("tick"));
        let time = request.header("schedule-time").unwrap().parse().unwrap();
        let key = request.header("idempotency-key").unwrap().to_owned();
        *seen.entry(time).or_default().entry(key).or_default() += 1;
    }
    // What the killed relay had in flight can come twice, under its key.
    assert!(seen.values().all(|keys| keys.len() == 1), "{seen:?}");
    let times: Vec<Timestamp> = seen.into_keys().collect();
    for pair in times.windows(2) {
        let apart = pair[1].duration_since(pair[0]);
        // What is in flight at the one that was killed comes when it was reaped.
        assert!(apart >= SignedDuration::from_secs(1), "{times:?}");
    }
    let client = database.connect().await;
    let holes = "select count(*) from (
                     select (headers->>'Schedule-Time')::timestamptz - lag((headers->>'Schedule-Time')::timestamptz)
                            over (order by headers->>'Schedule-Time') as apart
                       from (select headers from outbox.delivered union all select headers from outbox.messages) m) d
                  where apart <> interval '1 s'";
    let whole = async || one_count(&client, holes).await == 0;
    eventually("no second was left out", SOON, whole).await;
}

async fn one_count(client: &tokio_postgres::Client, query: &str) -> i64 {
    one(client, query).await
}

#[tokio::test]
async fn a_schedule_that_is_added_to_the_file_fires_and_check_says_when() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), "");
    let _relay = directory.run(&config, &database.url, "relay");
    let running = async || !directory.lines_with("registered").is_empty();
    eventually("it runs", SOON, running).await;
    let more = "[[schedules]]\nname = \"tick\"\ncron = \"* * * * * *\"\ntopic = \"tick\"\n\
                [[schedules]]\nname = \"leap\"\ncron = \"30 2 29 2 *\"\ntime_zone = \"Europe/Berlin\"\ntopic = \"leap\"\nmissed = \"skip\"\n";
    directory.config(&receiver.url("/"), more);
    receiver.wait_for(2, SOON).await.unwrap();

    let output = outbox_relay(
        &database.url,
        &["check", "--config", config.to_str().unwrap()],
    )
    .await;
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let at = lines
        .iter()
        .position(|line| {
            *line == "schedule leap → topic leap: 30 2 29 2 * Europe/Berlin (missed: skip)"
        })
        .unwrap_or_else(|| panic!("{said}"));
    let next: Vec<&str> = lines[at + 1..at + 4]
        .iter()
        .map(|line| line.trim())
        .collect();
    for line in &next {
        assert!(line.ends_with("-02-29 02:30:00 +01"), "{said}");
    }
    assert!(next[0] < next[1] && next[1] < next[2], "{said}");
}
