//! Three roles: the application inserts, the relay delivers, the reader reads; none can do more.

use std::time::Duration;

use outbox_relay::{
    maintenance::schedules::run_once,
    message::{Reason, Settlement},
    schedule::Missed,
    store::{Accepted, ClaimState, Mandate, Records, Requested, Retention, Sent, Settle, Store},
};

use super::{SqlState, config, store};
use crate::{
    outbox::{LANE, Outbox, take, verdict},
    support::rows::{mandate, way},
};

/// Expects each statement to be refused for want of a right.
async fn refused(outbox: &Outbox, role: &str, statements: &[&str]) {
    let client = outbox.database.connect().await;
    client
        .batch_execute(&format!("set role {role}"))
        .await
        .unwrap();
    for statement in statements {
        let Err(error) = client.batch_execute(statement).await else {
            panic!("{role} may {statement}");
        };
        let code = error.code().unwrap();
        let always = *code == SqlState::from_code("428C9");
        assert!(
            always || *code == SqlState::INSUFFICIENT_PRIVILEGE,
            "{statement}: {error:?}"
        );
    }
}

/// A store that connects as that role.
fn store_as(outbox: &Outbox, role: &str) -> Store {
    let url = format!("{}?options=-c%20role%3D{role}", outbox.database.url);
    Store::new(&store::Config { ..config(&url) }).unwrap()
}

#[tokio::test]
async fn the_writer_inserts_and_nothing_else() {
    let outbox = Outbox::new().await;
    outbox.insert("null, null::timestamptz").await;
    let statements = [
        "select payload from outbox.messages",
        "select * from outbox.messages",
        "insert into outbox.messages (topic) values ('t') returning payload",
        "update outbox.messages set topic = 'x'",
        "delete from outbox.messages",
        "truncate outbox.messages",
        "insert into outbox.messages (topic, seq) values ('t', 1)",
        "insert into outbox.messages (topic, seq) overriding system value values ('t', 1)",
        "insert into outbox.messages (topic, attempts) values ('t', 1)",
        "insert into outbox.messages (topic, lost) values ('t', 1)",
        "insert into outbox.messages (topic, throttled) values ('t', 1)",
        "insert into outbox.messages (topic, generation) values ('t', 1)",
        "insert into outbox.messages (topic, endpoint) values ('t', 'e')",
        "insert into outbox.messages (topic, last_error) values ('t', 'e')",
        "insert into outbox.messages (topic, size) values ('t', 1)",
        "select from outbox.leases",
        "select from outbox.dead_letters",
        "select from outbox.attempts",
        "select outbox.pause('e', 'why')",
        "select outbox.deregister(gen_random_uuid())",
        "select outbox.maintain_partitions(1, '1 day', '1 day')",
        "select nextval('outbox.messages_seq_seq')",
        "create table outbox.mine ()",
        "alter table outbox.messages add x int",
        "create trigger t after insert on outbox.messages execute function suppress_redundant_updates_trigger()",
    ];
    refused(&outbox, "outbox_writer", &statements).await;
    assert_eq!(outbox.count("outbox.messages").await, 1);
}

#[tokio::test]
async fn the_reader_reads_and_nothing_else() {
    let outbox = Outbox::new().await;
    outbox.insert("null, null::timestamptz").await;
    let client = outbox.database.connect().await;
    client
        .batch_execute("set role outbox_reader")
        .await
        .unwrap();
    let tables: Vec<String> = outbox
        .all(
            "select c.oid::regclass::text from pg_class c
              where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition",
            &[],
        )
        .await;
    assert!(tables.len() >= 12, "{tables:?}");
    for table in &tables {
        client
            .query(&format!("select * from {table}"), &[])
            .await
            .unwrap_or_else(|error| panic!("{table}: {error:?}"));
        refused(
            &outbox,
            "outbox_reader",
            &[
                &format!("insert into {table} default values"),
                &format!("delete from {table}"),
                &format!("truncate {table}"),
                &format!("alter table {table} add x int"),
            ],
        )
        .await;
    }
    let glance = store_as(&outbox, "outbox_reader");
    glance.overview(None, 10).await.unwrap();
    glance.failures(None, None, 10, 10).await.unwrap();
    let statements = [
        "insert into outbox.messages (topic) values ('t')",
        "update outbox.messages set topic = 'x'",
        "update outbox.endpoints set paused_at = null",
        "select outbox.pause('e', 'why')",
        "select outbox.resume('e')",
        "select from outbox.messages for update",
    ];
    refused(&outbox, "outbox_reader", &statements).await;
    store_as(&outbox, "outbox_reader").status().await.unwrap();
}

#[tokio::test]
async fn the_relay_can_run_all_that_it_runs() {
    let outbox = Outbox::new().await;
    outbox
        .run("insert into outbox.messages (topic, key, payload) select 't', 'k' || n, '{}' from generate_series(1, 6) n")
        .await;
    let store = store_as(&outbox, "outbox_relay");
    store.check().await.unwrap();
    store
        .add_endpoints(&[
            ("e", Duration::from_secs(10)),
            ("f", Duration::from_secs(10)),
        ])
        .await
        .unwrap();
    store.add_lanes(&[way(&LANE)]).await.unwrap();
    let mut me = store
        .register("a relay", "digest", Duration::from_secs(15))
        .await
        .unwrap();
    // An unlogged table is empty after a crash: the relay fills it.
    outbox.run("truncate outbox.epoch").await;
    let other = store
        .register("other", "digest", Duration::from_secs(15))
        .await
        .unwrap();
    me.epoch = other.epoch;
    assert_eq!(store.beat(me.relay).await.unwrap().unwrap().0, 1);
    assert_eq!(store.discover().await.unwrap().len(), 1);

    let claimed = store.claim(&me, &take(4)).await.unwrap();
    let lease = claimed.lease.unwrap();
    assert_eq!(claimed.deliveries.len(), 4);
    let ways = [
        Settlement::Delivered,
        Settlement::Retry(Duration::from_secs(1)),
        Settlement::Dead(Reason::Rejected),
        Settlement::Release,
    ];
    let settles: Vec<Settle> = lease
        .ids
        .iter()
        .zip(ways)
        .map(|(id, way)| Settle {
            hold: true,
            ..verdict(lease.id, *id, way)
        })
        .collect();
    let settles = outbox.of_now(&settles).await;
    let report = store
        .settle(&me, "a relay", "", &settles, Records::ALL)
        .await
        .unwrap();
    assert_eq!((report.settled.len(), report.history_error), (3, None));
    let claim = crate::outbox::take_in_order(4);
    assert_eq!(
        store.claim(&me, &claim).await.unwrap().state,
        ClaimState::Claimed
    );

    assert_eq!(store.beat(other.relay).await.unwrap().unwrap().1.len(), 1);
    assert!(store.reap(me.relay, 1, 0).await.unwrap().dead > 0);
    assert_eq!(store.recover(other.relay, &[]).await.unwrap(), Some(1));
    store.deregister(other.relay).await.unwrap();
    assert_eq!(
        store.pause("e", mandate("why", "me")).await.unwrap(),
        Some(true)
    );
    assert_eq!(
        store.resume("e", Mandate::default()).await.unwrap(),
        Some(true)
    );
    let schedules = [crate::schedules::schedule("s", "0 * * * *", Missed::Once)];
    run_once(&store, &schedules).await.unwrap();
    outbox
        .run("update outbox.schedules set fired_at = now() - interval '1 day'")
        .await;
    run_once(&store, &schedules).await.unwrap();
    let fired = "outbox.messages where headers->>'Schedule-Name' = 's'";
    assert!(outbox.count(fired).await > 0);
    let requested = Requested {
        caller: "c",
        key: Some("k"),
        digest: b"d",
    };
    let sent = Sent {
        topic: "t",
        payload: Some("{}"),
        ..Sent::default()
    };
    let accepted = store.accept(requested, sent).await.unwrap();
    assert_eq!(store.accept(requested, sent).await.unwrap(), accepted);
    assert!(matches!(accepted, Accepted::Message(_)));
    assert_eq!(store.forget_requests(Duration::ZERO, 10).await.unwrap(), 1);
    store.status().await.unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    // Days that the migration did not make, and those of the past go.
    outbox
        .run(
            "create table outbox.attempts_20200101 partition of outbox.attempts for values from ('2020-01-01') to ('2020-01-02')",
        )
        .await;
    let keep = Retention {
        attempts: 10_000 * day,
        successes: day,
        delivered: day,
    };
    let done = store.maintain_partitions(9, &keep).await.unwrap();
    assert_eq!((done.made, done.dropped, done.thinned), (4, 0, 1));
    let keep = Retention {
        attempts: day,
        ..keep
    };
    let done = store.maintain_partitions(9, &keep).await.unwrap();
    assert_eq!((done.made, done.dropped, done.thinned), (0, 1, 0));
}

#[tokio::test]
async fn the_relay_can_touch_nothing_else() {
    let outbox = Outbox::new().await;
    outbox.run("create table public.orders (n int)").await;
    let statements = [
        "select from public.orders",
        "insert into public.orders values (1)",
        "alter table outbox.messages add x int",
        "alter table outbox.attempts add x int",
        "create table outbox.mine ()",
        "create index on outbox.messages (topic)",
        "drop table outbox.leases",
        "truncate outbox.messages",
        "update outbox.meta set guard = 'x'",
        "insert into outbox.migrations (version, name) values (9, 'x')",
        "select setval('outbox.messages_seq_seq', 1)",
        "create or replace function outbox.deregister(p_relay uuid) returns void language sql as ''",
    ];
    refused(&outbox, "outbox_relay", &statements).await;
}

/// What the catalogue says of each role, so that nothing is granted that no test of a statement would notice.
#[tokio::test]
async fn each_role_has_these_rights_and_no_others() {
    let outbox = Outbox::new().await;
    let rights: Vec<String> = outbox
        .all(
            "select r.role || ': ' || string_agg(distinct p.name || ' ' || c.relname, ', ' order by p.name || ' ' || c.relname)
               from unnest(array['outbox_writer', 'outbox_reader', 'public']) r (role)
              cross join unnest(array['select', 'insert', 'update', 'references']) p (name)
              cross join pg_class c
              where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'p')
                and has_any_column_privilege(r.role, c.oid, p.name)
                and (r.role <> 'outbox_reader' or p.name <> 'select')
              group by r.role",
            &[],
        )
        .await;
    assert_eq!(
        rights,
        ["outbox_writer: insert messages, insert sagas, select messages, select sagas"]
    );
    let columns: Vec<String> = outbox
        .all(
            "select a.attname::text from pg_attribute a
              where a.attrelid = 'outbox.messages'::regclass and a.attnum > 0
                and has_column_privilege('outbox_writer', a.attrelid, a.attnum, 'select')
              order by a.attnum",
            &[],
        )
        .await;
    assert_eq!(columns, ["id", "seq"]);
    let strong: Vec<String> = outbox
        .all(
            "select r.role || ' ' || p.name || ' ' || c.relname
               from unnest(array['outbox_writer', 'outbox_reader', 'outbox_relay', 'public']) r (role)
              cross join unnest(array['delete', 'truncate', 'trigger']) p (name)
              cross join pg_class c
              where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'p')
                and has_table_privilege(r.role, c.oid, p.name)
                and (r.role <> 'outbox_relay' or p.name <> 'delete')",
            &[],
        )
        .await;
    assert!(strong.is_empty(), "{strong:?}");
    let callers: Vec<String> = outbox
        .all(
            "select distinct r.role
               from unnest(array['outbox_writer', 'outbox_reader', 'outbox_relay', 'public']) r (role)
              cross join pg_proc p
              where p.pronamespace = 'outbox'::regnamespace and has_function_privilege(r.role, p.oid, 'execute')
                and not (r.role = 'outbox_reader' and p.proname = any (array[
                    'list', 'history', 'show', 'why', 'obstacles', 'matching', 'fits', 'check_filter',
                    'find_sagas', 'matching_sagas', 'show_saga']))
                and not (r.role = 'outbox_writer' and p.proname = 'check_plan')",
            &[],
        )
        .await;
    assert_eq!(callers, ["outbox_relay"]);
    let elsewhere: Vec<String> = outbox
        .all(
            "select r.role || ' ' || n.nspname
               from unnest(array['outbox_writer', 'outbox_reader', 'outbox_relay']) r (role)
              cross join pg_namespace n
              where has_schema_privilege(r.role, n.oid, 'create') and not has_schema_privilege('public', n.oid, 'create')",
            &[],
        )
        .await;
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
}

/// One that runs with its owner's rights must not find its names where its caller says.
#[tokio::test]
async fn functions_with_their_owners_rights_say_where_their_names_are() {
    let outbox = Outbox::new().await;
    let settings =
        "select p.proname || ' ' || coalesce(array_to_string(p.proconfig, ' '), '') from pg_proc p
                     where p.pronamespace = 'outbox'::regnamespace and p.prosecdef order by 1";
    let definers: Vec<String> = outbox.all(settings, &[]).await;
    assert_eq!(definers.len(), 2, "{definers:?}");
    for definer in definers {
        let pinned = definer.contains("search_path=pg_catalog, pg_temp ");
        assert!(pinned, "{definer}");
    }
}

/// Rows that it can't see it would never deliver.
#[tokio::test]
async fn row_security_that_holds_for_the_relay_is_refused() {
    let outbox = Outbox::new().await;
    outbox
        .run("alter table outbox.messages enable row level security")
        .await;
    outbox.store.check().await.unwrap();
    let said = store_as(&outbox, "outbox_relay").check().await;
    let said = said.unwrap_err().to_string();
    let says = "table messages is `plain logged with row security` and should be `plain logged`";
    assert!(said.contains(says), "{said}");
}
