//! A migration can be run by anybody, at any time, any number of times, and a copy of an outbox does not deliver.

use std::time::Duration;

use outbox_relay::{
    lab::cluster::{Cluster, Options},
    store::{self, SCHEMA_VERSION, Store, script},
};
use tokio::{task::JoinSet, time::timeout};
use tokio_postgres::{Client, NoTls};

use crate::support::{Database, config, copy_of, database, empty_database};

/// What a migration makes, line by line; dates in names of partitions are of no interest.
const SCHEMA: &str = "
    select 'column ' || c.oid::regclass || ' ' || a.attnum || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
           || ' ' || a.attnotnull::text || ' ' || a.attidentity::text || a.attgenerated::text || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
           || ' ' || coalesce(a.attacl::text, '') || ' ' || coalesce(col_description(c.oid, a.attnum), '')
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
      left join pg_attrdef d on (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
     where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'p')
    union all
    select 'relation ' || c.oid::regclass || ' ' || c.relkind::text || c.relpersistence::text || ' ' || coalesce(c.relacl::text, '')
           || ' ' || coalesce(c.reloptions::text, '') || ' ' || coalesce(obj_description(c.oid, 'pg_class'), '')
           || ' ' || coalesce(pg_get_expr(c.relpartbound, c.oid), '')
      from pg_class c where c.relnamespace = 'outbox'::regnamespace
    union all
    select 'constraint ' || c.conrelid::regclass || ' ' || c.conname || ' ' || pg_get_constraintdef(c.oid)
      from pg_constraint c where c.connamespace = 'outbox'::regnamespace
    union all
    select 'index ' || pg_get_indexdef(i.indexrelid)
      from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'outbox'::regnamespace
    union all
    select 'function ' || p.oid::regprocedure || ' ' || md5(p.prosrc) || ' ' || pg_get_function_result(p.oid) || ' ' || p.prosecdef::text
           || ' ' || p.provolatile::text || ' ' || coalesce(p.proconfig::text, '') || ' ' || coalesce(p.proacl::text, '')
           || ' ' || coalesce(obj_description(p.oid, 'pg_proc'), '')
      from pg_proc p where p.pronamespace = 'outbox'::regnamespace
    union all
    select 'schema ' || n.nspname || ' ' || coalesce(n.nspacl::text, '') || ' ' || coalesce(obj_description(n.oid, 'pg_namespace'), '')
      from pg_namespace n where n.nspname = 'outbox'
    union all
    select 'migration ' || version || ' ' || name from outbox.migrations
    union all
    select 'meta ' || (system_identifier is not null)::text || ' ' || (database = current_database())::text from outbox.meta
     order by 1";

async fn schema(client: &Client) -> Vec<String> {
    let rows = client.query(SCHEMA, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Says only what is different.
fn assert_same(one: &[String], other: &[String]) {
    let only = |of: &[String], not: &[String]| -> Vec<String> {
        of.iter()
            .filter(|line| !not.contains(line))
            .cloned()
            .collect()
    };
    assert_eq!(only(one, other), only(other, one));
    assert!(one.len() > 150, "{}", one.len());
}

fn guarded(database: &Database, word: Option<&str>) -> Store {
    Store::new(&store::Config {
        guard: word.map(str::to_owned),
        ..config(&database.url)
    })
    .unwrap()
}

/// What a check says; empty if it is content.
async fn said(store: &Store) -> String {
    store
        .check()
        .await
        .err()
        .map_or(String::new(), |error| error.to_string())
}

#[tokio::test]
async fn a_database_without_an_outbox_says_what_to_do() {
    let database = empty_database().await;
    let store = database.store();
    assert_eq!(store.version().await.unwrap(), None);
    assert_eq!(
        said(&store).await,
        "the database has no outbox yet: run `outbox-relay migrate`"
    );
    let migrated = store.migrate(None, false).await.unwrap();
    assert_eq!((migrated.from, migrated.to), (None, SCHEMA_VERSION));
    assert!(migrated.missing_roles.is_empty());
    assert_eq!(said(&store).await, "");
}

#[tokio::test]
async fn a_migration_that_is_run_again_changes_nothing() {
    let database = database().await;
    let client = database.connect().await;
    client
        .batch_execute("insert into outbox.messages (topic) values ('t')")
        .await
        .unwrap();
    let before = schema(&client).await;
    for _ in 0..2 {
        let migrated = database.store().migrate(None, false).await.unwrap();
        assert_eq!(migrated.from, Some(SCHEMA_VERSION));
        assert_same(&schema(&client).await, &before);
    }
}

#[tokio::test]
async fn four_migrators_at_once_make_one_outbox() {
    let database = empty_database().await;
    let mut migrators = JoinSet::new();
    for _ in 0..4 {
        let store = database.store();
        migrators.spawn(async move { store.migrate(None, false).await });
    }
    while let Some(migrated) = migrators.join_next().await {
        assert_eq!(migrated.unwrap().unwrap().to, SCHEMA_VERSION);
    }
    let other = crate::support::database().await;
    let (one, four) = (other.connect().await, database.connect().await);
    assert_same(&schema(&four).await, &schema(&one).await);
    assert_eq!(said(&database.store()).await, "");
}

#[tokio::test]
async fn the_script_for_a_person_makes_the_same_outbox() {
    let (by_hand, migrated) = (empty_database().await, database().await);
    let client = by_hand.connect().await;
    client.batch_execute(&script(None)).await.unwrap();
    let migrated = schema(&migrated.connect().await).await;
    assert_same(&schema(&client).await, &migrated);
    assert_eq!(said(&by_hand.store()).await, "");
    let after = by_hand.store().migrate(None, false).await.unwrap();
    assert_eq!(after.from, Some(SCHEMA_VERSION));
}

#[tokio::test]
async fn a_schema_of_somebody_elses_is_named_and_left_alone() {
    for (made, strange) in [
        ("create table outbox.events (id int)", "events"),
        ("create table outbox.migrations (id text)", "migrations"),
        (
            "create function outbox.f() returns int language sql as 'select 1'",
            "f",
        ),
    ] {
        let database = empty_database().await;
        let client = database.connect().await;
        let create = format!("create schema outbox; {made}");
        client.batch_execute(&create).await.unwrap();
        let store = database.store();
        let says = said(&store).await;
        let sentence = format!(
            "this database has a schema outbox that is not outbox-relay's: it has outbox.{strange}, and no"
        );
        assert!(says.starts_with(&sentence), "{says}");
        let error = store.migrate(None, false).await.unwrap_err();
        assert_eq!(error.to_string(), says);
    }
    // One that is empty was made for this.
    let database = empty_database().await;
    let client = database.connect().await;
    client.batch_execute("create schema outbox").await.unwrap();
    database.store().migrate(None, false).await.unwrap();
    assert_eq!(said(&database.store()).await, "");
}

#[tokio::test]
async fn a_newer_database_is_left_alone() {
    let database = database().await;
    let client = database.connect().await;
    let insert = "insert into outbox.migrations (version, name) values (99, 'later')";
    client.batch_execute(insert).await.unwrap();
    let sentence = format!(
        "the schema is at version 99, newer than this binary's {SCHEMA_VERSION}: run a newer outbox-relay"
    );
    let store = database.store();
    assert_eq!(said(&store).await, sentence);
    let error = store.migrate(None, false).await.unwrap_err();
    assert_eq!(error.to_string(), sentence);
}

#[tokio::test]
async fn an_older_database_is_not_delivered_from() {
    let database = database().await;
    let client = database.connect().await;
    client
        .batch_execute("delete from outbox.migrations")
        .await
        .unwrap();
    let says = said(&database.store()).await;
    assert!(says.contains("run `outbox-relay migrate`"), "{says}");
}

#[tokio::test]
async fn a_copy_is_refused_until_it_is_accepted() {
    let original = empty_database().await;
    {
        let store = original.store();
        store.migrate(Some("word"), false).await.unwrap();
        let client = original.connect().await;
        client
            .batch_execute(
                "insert into outbox.messages (topic) select 't' from generate_series(1, 5);
                 select outbox.register('a relay', '1', 'd', 15);
                 insert into outbox.leases (relay, topic, lane_endpoint, endpoint, ids, keys)
                 select relay, 't', '', 'e', '{}', '{}' from outbox.relays",
            )
            .await
            .unwrap();
    }
    let copy = copy_of(&original).await;
    let store = guarded(&copy, Some("word"));
    let says = said(&store).await;
    let (start, end) = (
        "this database is a copy: ",
        "run `outbox-relay migrate --accept-copy`",
    );
    assert!(says.starts_with(start) && says.ends_with(end), "{says}");
    assert!(
        says.contains(&original.name) && says.contains(&copy.name),
        "{says}"
    );
    store.migrate(None, false).await.unwrap();
    assert_eq!(
        said(&store).await,
        says,
        "a migration alone accepts nothing"
    );
    store.migrate(None, true).await.unwrap();
    assert_eq!(said(&store).await, "");
    let client = copy.connect().await;
    let row = client
        .query_one(
            "select (select count(*) from outbox.leases), (select count(*) from outbox.relays), (select count(*) from outbox.messages)",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), (0_i64, 0_i64, 5_i64));
    assert_eq!(said(&guarded(&original, Some("word"))).await, "");
}

#[tokio::test]
async fn a_clone_of_another_server_is_refused() {
    let database = database().await;
    let client = database.connect().await;
    client
        .batch_execute("update outbox.meta set system_identifier = '1'")
        .await
        .unwrap();
    let says = said(&database.store()).await;
    assert!(says.starts_with("this database is a copy: "), "{says}");
    // Where the server does not say who it is, the name must do.
    client
        .batch_execute("update outbox.meta set system_identifier = null")
        .await
        .unwrap();
    assert_eq!(said(&database.store()).await, "");
}

#[tokio::test]
async fn the_guard_word_must_be_the_same_on_both_sides() {
    let database = database().await;
    let says = said(&guarded(&database, Some("blue"))).await;
    assert!(
        says.ends_with("`outbox-relay migrate --guard blue`"),
        "{says}"
    );
    database.store().migrate(Some("blue"), false).await.unwrap();
    assert_eq!(said(&guarded(&database, Some("blue"))).await, "");
    let says = said(&guarded(&database, Some("green"))).await;
    assert!(
        says.contains("\"blue\"") && says.contains("\"green\""),
        "{says}"
    );
    let says = said(&guarded(&database, None)).await;
    assert!(
        says.contains("set guard = \"blue\" under [database]"),
        "{says}"
    );
    // A migration without a word keeps it.
    database.store().migrate(None, false).await.unwrap();
    assert_eq!(said(&guarded(&database, Some("blue"))).await, "");
    database
        .store()
        .migrate(Some("green"), false)
        .await
        .unwrap();
    assert_eq!(said(&guarded(&database, Some("green"))).await, "");
}

#[tokio::test]
async fn a_sequence_behind_its_rows_is_refused() {
    for place in [
        "",
        "update outbox.messages set due_at = now() + interval '1 hour'",
        "insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size, topic, endpoint, reason)
         select id, '', now(), now(), seq, 0, 0, 0, 0, 0, topic, 'e', 'rejected' from outbox.messages;
         delete from outbox.messages",
    ] {
        let database = database().await;
        let store = database.store();
        let client = database.connect().await;
        // In several lanes: the highest is in none of the ends.
        let fill = "insert into outbox.messages (topic) select 't' || n % 7 from generate_series(1, 50) n";
        client.batch_execute(fill).await.unwrap();
        client.batch_execute(place).await.unwrap();
        assert_eq!(said(&store).await, "");
        let back = "select setval('outbox.messages_seq_seq', 49)";
        client.batch_execute(back).await.unwrap();
        let says = said(&store).await;
        assert!(says.contains("is at 49, and a message has 50"), "{says}");
        assert!(says.contains("setval('outbox.messages_seq_seq', 50)"), "{says}");
        store.migrate(None, true).await.unwrap();
        assert_eq!(said(&store).await, "");
        let next = "insert into outbox.messages (topic) values ('t') returning seq";
        let seq: i64 = client.query_one(next, &[]).await.unwrap().get(0);
        assert_eq!(seq, 51);
    }
}

#[tokio::test]
async fn a_migration_that_is_up_to_date_waits_for_no_application() {
    let database = database().await;
    let app = database.connect().await;
    app.batch_execute("begin; insert into outbox.messages (topic) values ('t'); lock table outbox.messages in row exclusive mode")
        .await
        .unwrap();
    let store = database.store();
    let migrated = timeout(Duration::from_secs(5), store.migrate(None, false)).await;
    migrated.expect("it returns at once").unwrap();
    app.batch_execute("commit").await.unwrap();
}

#[tokio::test]
async fn an_owner_who_may_not_create_roles_is_told_which_are_missing() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let mut connections = JoinSet::new();
    let (admin, connection) = tokio_postgres::connect(&cluster.url("postgres"), NoTls)
        .await
        .unwrap();
    connections.spawn(connection);
    admin
        .batch_execute("create role owner login")
        .await
        .unwrap();
    admin
        .batch_execute("create database shop owner owner")
        .await
        .unwrap();
    let url = cluster.url("shop").replace("postgres@", "owner@");
    let store = Store::new(&config(&url)).unwrap();
    let migrated = store.migrate(None, false).await.unwrap();
    assert_eq!(
        migrated.missing_roles,
        ["outbox_writer", "outbox_relay", "outbox_reader"]
    );
    assert_eq!(said(&store).await, "");
    // The owner itself can be the relay.
    store
        .register("a relay", "d", Duration::from_secs(15))
        .await
        .unwrap();
    // Somebody with more rights makes them, and the next migration grants.
    admin
        .batch_execute(
            "create role outbox_writer; create role outbox_relay; create role outbox_reader",
        )
        .await
        .unwrap();
    let migrated = store.migrate(None, false).await.unwrap();
    assert!(migrated.missing_roles.is_empty());
    let (owner, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    connections.spawn(connection);
    let may = "select has_table_privilege('outbox_relay', 'outbox.messages', 'delete')";
    assert!(owner.query_one(may, &[]).await.unwrap().get::<_, bool>(0));
}
