//! Every statement fits the schema, and its plan is the one that was meant: whatever the size of the tables and whatever
//! statistics say about them, an index leads to the rows and no more of them are read than asked for.
//!
//! The plans are those that really ran, inside of functions too: `auto_explain` sends them as notices.

mod alerts;
mod people;
mod pinned;
mod sagas;

use std::{
    future::poll_fn,
    task::{Poll, ready},
};

use outbox_relay::store::STATEMENTS;
use serde_json::Value;
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    task::JoinSet,
};
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, types::ToSql};
use uuid::Uuid;

use crate::outbox::Outbox;

const BEGIN: &str = include_str!("../../sql/begin.sql");

/// Tables that grow.
const LARGE: [&str; 6] = [
    "messages",
    "leases",
    "lanes",
    "held_keys",
    "dead_letters",
    "sagas",
];

/// Messages in one claim.
const LIMIT: i32 = 200;

/// Messages that are given up at once.
const EXPIRING: i32 = 100;

/// Rows that one scan may read: the window of an ordered claim, and some.
const ROWS: f64 = 1000.0;

/// Pages that one scan may touch, with what is looked up for each of its rows: a few descents of an index. A whole index of a
/// million has 4,000 and more.
const PAGES: f64 = 3000.0;

#[tokio::test]
async fn every_statement_fits_the_schema() {
    let outbox = Outbox::new().await;
    assert!(STATEMENTS.len() > 20);
    outbox.run(BEGIN).await;
    for statement in STATEMENTS {
        if let Err(error) = outbox.client.prepare(statement.text).await {
            panic!("{}: {error:?}", statement.name);
        }
    }
}

#[tokio::test]
async fn plans_hold_on_an_empty_table() {
    plans_hold(0, FRESH_AND_RETRIES).await;
}

#[tokio::test]
async fn plans_hold_at_twenty_thousand_rows() {
    plans_hold(20_000, FRESH_AND_RETRIES).await;
}

#[tokio::test]
async fn plans_hold_at_a_million_rows() {
    plans_hold(1_000_000, FRESH_AND_RETRIES).await;
}

#[tokio::test]
async fn plans_hold_with_a_million_rows_in_backoff_and_none_ready() {
    plans_hold(1_000_000, BACKOFF).await;
}

const FRESH_AND_RETRIES: &str = "case when n % 2 = 0 then now() - interval '1 s' * (n % 1000) end";
const BACKOFF: &str = "now() + interval '1 hour' + interval '1 ms' * n";

/// A queue is nearly always empty, and its indexes have the size of its busiest hour.
#[tokio::test]
async fn plans_hold_in_a_table_that_was_full_and_empty_since() {
    let outbox = Outbox::new().await;
    outbox.run(QUIET).await;
    fill(&outbox, 50_000, FRESH_AND_RETRIES).await;
    for empty in [
        "delete from outbox.messages",
        "delete from outbox.leases",
        "delete from outbox.held_keys",
    ] {
        outbox.run(empty).await;
    }
    outbox
        .run("vacuum (truncate off, analyze) outbox.messages, outbox.leases, outbox.held_keys")
        .await;
    fill(&outbox, 20_000, FRESH_AND_RETRIES).await;
    check(&outbox, "analysed while empty, after it was full").await;
}

/// What is analysed, and when, is what the test is about.
const QUIET: &str = "alter table outbox.messages set (autovacuum_enabled = off);
                     alter table outbox.leases set (autovacuum_enabled = off);
                     alter table outbox.held_keys set (autovacuum_enabled = off);";

async fn plans_hold(rows: i32, due: &str) {
    let outbox = Outbox::new().await;
    outbox.run(QUIET).await;
    outbox
        .run("analyze outbox.messages; analyze outbox.leases; analyze outbox.lanes")
        .await;
    fill(&outbox, rows, due).await;
    check(&outbox, "analysed while empty").await;
    outbox
        .run(
            "delete from pg_statistic where starelid in (select oid from pg_class where relnamespace = 'outbox'::regnamespace);
             update pg_class set reltuples = -1, relpages = 0, relallvisible = 0 where relnamespace = 'outbox'::regnamespace and relkind = 'r'",
        )
        .await;
    check(&outbox, "never analysed").await;
    outbox
        .run("analyze outbox.messages; analyze outbox.leases; analyze outbox.lanes")
        .await;
    check(&outbox, "analysed").await;
    if due == BACKOFF {
        outbox
            .run("update outbox.messages set due_at = now() where topic = 't' and seq <= 5000")
            .await;
        check(&outbox, "some are due").await;
    }
}

async fn fill(outbox: &Outbox, rows: i32, due: &str) {
    outbox
        .run(&format!(
            "set synchronous_commit = off;
             insert into outbox.messages (topic, key, payload, due_at, attempts, expires_at)
             select 't', 'k' || n % 100000, '{{\"n\": 1}}', {due}, n % 2, case when n % 3 = 0 then now() + interval '1 s' * (n % 7 - 5) end from generate_series(1, {rows}) n;
             insert into outbox.messages (topic, due_at)
             select 'other' || n % 50, case when n % 3 = 0 then now() end from generate_series(1, {rows} / 1000) n;
             insert into outbox.held_keys (topic, lane_endpoint, key, endpoint, id, seq)
             select 't', '', 'h' || n, 'e', gen_random_uuid(), 0 from generate_series(1, {rows} / 10) n;
             insert into outbox.lanes (topic) select 'other' || n from generate_series(1, {rows} / 1000) n on conflict do nothing;
             insert into outbox.leases (relay, topic, lane_endpoint, endpoint, ids, keys)
             select gen_random_uuid(), 'other' || n % 50, '', 'e', array[gen_random_uuid()], '{{}}' from generate_series(1, {rows} / 500) n;",
        ))
        .await;
}

/// A session whose plans can be seen.
struct Session {
    client: Client,
    notices: UnboundedReceiver<String>,
    _connection: JoinSet<()>,
}

impl Session {
    async fn new(url: &str) -> Session {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let (sender, notices) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(poll_fn(move |context| {
            loop {
                match ready!(connection.poll_message(context)) {
                    Some(Ok(AsyncMessage::Notice(notice))) => {
                        sender.send(notice.message().to_owned()).ok();
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
        }));
        client
            .batch_execute(
                "load 'auto_explain';
                 set auto_explain.log_level = notice; set auto_explain.log_format = json;
                 set auto_explain.log_nested_statements = on;
                 set auto_explain.log_analyze = on; set auto_explain.log_timing = off; set auto_explain.log_buffers = on;",
            )
            .await
            .unwrap();
        Session {
            client,
            notices,
            _connection: tasks,
        }
    }

    /// Runs one of the relay's statements.
    async fn run(&self, name: &str, parameters: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        let statement = STATEMENTS.iter().find(|statement| statement.name == name);
        self.client
            .query(statement.unwrap().text, parameters)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error:?}"))
    }

    /// Claims from these floors.
    async fn claim(
        &self,
        relay: Uuid,
        epoch: Uuid,
        in_order: bool,
        limit: i32,
        floors: &Row,
    ) -> Row {
        let (ready, waiting, seq, lease): (i64, Option<std::time::SystemTime>, i64, i64) =
            (floors.get(0), floors.get(1), floors.get(2), floors.get(3));
        let open: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
        let (session, bytes, chain) = (0_i32, i64::MAX, 8_i32);
        let claimed = self
            .run(
                "claim",
                &[
                    &relay,
                    &session,
                    &epoch,
                    &"t",
                    &"",
                    &"e",
                    &in_order,
                    &in_order,
                    &limit,
                    &bytes,
                    &chain,
                    &ready,
                    &waiting,
                    &seq,
                    &lease,
                    &open,
                    &None::<i32>,
                    &2_i32,
                    &10.0_f64,
                    &64_i32,
                    &0_i64,
                ],
            )
            .await
            .remove(0);
        self.run("load", &[&relay, &""]).await;
        claimed
    }
}

/// Runs what the relay runs, and looks at each plan.
async fn check(outbox: &Outbox, when: &str) {
    for mode in ["auto", "force_generic_plan"] {
        let (plans, faults) = watch(outbox, mode, whole_life).await;
        assert!(faults.is_empty(), "{when}, {mode}: {}", faults.join("\n"));
        assert!(plans > 40, "{plans} plans were seen");
    }
}

/// How many plans ran, and what each of them did that it must not.
async fn watch(
    outbox: &Outbox,
    mode: &str,
    run: impl AsyncFnOnce(&Session),
) -> (usize, Vec<String>) {
    let mut session = Session::new(&outbox.database.url).await;
    session
        .client
        .batch_execute(&format!(
            "{BEGIN}; set local plan_cache_mode = {mode}; set auto_explain.log_min_duration = 0"
        ))
        .await
        .unwrap();
    run(&session).await;
    session
        .client
        .batch_execute("set auto_explain.log_min_duration = -1; rollback")
        .await
        .unwrap();
    let (mut plans, mut all) = (0, Vec::new());
    while let Ok(notice) = session.notices.try_recv() {
        let Some((_, json)) = notice.split_once("plan:\n") else {
            continue;
        };
        let explained: Value = serde_json::from_str(json).unwrap();
        let mut faults = Vec::new();
        inspect(&explained["Plan"], &mut faults);
        if !faults.is_empty() {
            let text = explained["Query Text"].as_str().unwrap();
            all.push(format!("{faults:#?} in\n{text}\n{:#}", explained["Plan"]));
        }
        plans += 1;
    }
    (plans, all)
}

/// The statements of a relay's life but those for people.
async fn whole_life(session: &Session) {
    session.run("identity", &[]).await;
    session.run("discover", &[&true, &vec!["order"]]).await;
    let (topics, ends) = (vec!["t", "other1"], vec!["", ""]);
    for in_order in [false, true] {
        let (leads_to, in_order) = (vec!["e", "e"], vec![in_order; 2]);
        session
            .run("oldest_due", &[&topics, &ends, &leads_to, &in_order])
            .await;
    }
    let register = async || {
        let row = session
            .run("register", &[&"a relay", &"1", &"digest", &15.0_f64])
            .await
            .remove(0);
        (row.get::<_, Uuid>("relay"), row.get::<_, Uuid>("epoch"))
    };
    let (me, epoch) = register().await;
    let (dead, _) = register().await;
    let floors = "select 0::bigint, null::timestamptz, 0::bigint, 0::bigint";
    let bottom = session.client.query_one(floors, &[]).await.unwrap();
    expand(session, me, epoch, &bottom).await;
    let mut leases = Vec::new();
    for in_order in [false, true] {
        for (relay, limit) in [(me, LIMIT), (dead, LIMIT / 4)] {
            let claimed = session.claim(relay, epoch, in_order, limit, &bottom).await;
            let above = session
                .client
                .query_one(
                    "select $1::bigint, $2::timestamptz, $3::bigint, $4::bigint",
                    &[
                        &claimed.get::<_, i64>("ready_floor"),
                        &claimed.get::<_, Option<std::time::SystemTime>>("waiting_floor"),
                        &claimed.get::<_, i64>("waiting_seq"),
                        &claimed.get::<_, i64>("lease_floor"),
                    ],
                )
                .await
                .unwrap();
            let next = session.claim(relay, epoch, in_order, limit, &above).await;
            if relay == me {
                leases.extend([claimed, next]);
            }
        }
    }
    for lease in &leases {
        let ids: Vec<Uuid> = lease.get("ids");
        settle(
            session,
            me,
            lease.get::<_, Option<i64>>("lease").unwrap_or(0),
            &ids,
        )
        .await;
    }
    expire(session).await;
    session.run("beat", &[&me]).await;
    session.run("reap", &[&dead, &0_i64, &3_i32]).await;
    session.run("recover", &[&me, &vec![1_i64]]).await;
    session.run("deregister", &[&me]).await;
}

/// Fan-out in another topic, so that claims are of an untouched one.
async fn expand(session: &Session, relay: Uuid, epoch: Uuid, floors: &Row) {
    let (ready, waiting, seq, lease): (i64, Option<std::time::SystemTime>, i64, i64) =
        (floors.get(0), floors.get(1), floors.get(2), floors.get(3));
    let (to, known) = (vec!["e", "f"], vec!["e", "f", "g"]);
    let ways: [&(dyn ToSql + Sync); 4] = [&vec!["t"], &vec![""], &vec!["[\"e\"]"], &vec![false]];
    session.run("add_lanes", &ways).await;
    session
        .client
        .batch_execute("savepoint before")
        .await
        .unwrap();
    session
        .run(
            "expand",
            &[
                &relay,
                &0_i32,
                &epoch,
                &"t",
                &to,
                &known,
                &LIMIT,
                &i64::MAX,
                &ready,
                &waiting,
                &seq,
                &lease,
            ],
        )
        .await;
    session
        .client
        .batch_execute("rollback to before")
        .await
        .unwrap();
}

/// Gives up what has expired, in both ways.
async fn expire(session: &Session) {
    let mut place = (None::<std::time::SystemTime>, 0_i64);
    for hold in [true, false] {
        let expired = session
            .run("expired", &[&place.0, &place.1, &EXPIRING])
            .await;
        for lane in &expired {
            let (topic, ids): (&str, Vec<Uuid>) = (lane.get("topic"), lane.get("ids"));
            let parameters: [&(dyn ToSql + Sync); 7] =
                [&Uuid::nil(), &topic, &"", &"e", &hold, &ids, &"a relay"];
            session.run("expire", &parameters).await;
            place = (lane.get("expires_at"), lane.get("seq"));
        }
    }
}

/// Settles all of a lease, in all ways.
async fn settle(session: &Session, relay: Uuid, lease: i64, ids: &[Uuid]) {
    let count = ids.len();
    let rows = session
        .client
        .query("select (select m.seq from outbox.messages m where m.id = i.id and m.endpoint = '' order by m.id limit 1) from unnest($1::uuid[]) with ordinality i (id, n) order by i.n", &[&ids])
        .await
        .unwrap();
    let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let ways = ["delivered", "retry", "dead", "release"];
    let ways: Vec<&str> = (0..count).map(|n| ways[n % ways.len()]).collect();
    let text = |value: &'static str| vec![value; count];
    let numbers = |value: i32| vec![value; count];
    session
        .run(
            "settle",
            &[
                &relay,
                &"a relay",
                &"",
                &text("e"),
                &vec![lease; count],
                &ids,
                &seqs,
                &numbers(0),
                &ways,
                &vec![1.0_f64; count],
                &text("rejected"),
                &vec![true; count],
                &numbers(1),
                &text("unavailable"),
                &numbers(503),
                &text("error"),
                &text("response"),
                &vec![0.1_f64; count],
                &vec![0.1_f64; count],
                &true,
                &"all",
                &text("{}"),
                &text("{}"),
                &text("{}"),
                &text("http://h/jobs/1"),
            ],
        )
        .await;
}

/// Collects what a plan does that it must not.
fn inspect(node: &Value, faults: &mut Vec<String>) {
    let kind = node["Node Type"].as_str().unwrap();
    let relation = node["Relation Name"].as_str().unwrap_or_default();
    let number = |name: &str| node[name].as_f64().unwrap_or(0.0);
    // A hash join is good where both sides are bounded: what they read is counted below.
    if kind == "Merge Join" || kind.starts_with("Bitmap") {
        faults.push(format!("{kind} {relation}"));
    }
    let partition = relation.starts_with("attempts_") || relation.starts_with("delivered_");
    if (partition || LARGE.contains(&relation)) && kind.ends_with("Scan") {
        if kind == "Seq Scan" {
            faults.push(format!("{kind} on {relation}"));
        }
        let read =
            (number("Actual Rows") + number("Rows Removed by Filter")) * number("Actual Loops");
        let pages = number("Shared Hit Blocks") + number("Shared Read Blocks");
        if read > ROWS || pages > PAGES {
            faults.push(format!(
                "{kind} on {relation} read {read} rows and {pages} pages"
            ));
        }
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        inspect(child, faults);
    }
}
