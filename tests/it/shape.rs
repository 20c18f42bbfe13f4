//! A schema that was altered by hand is named at start, and nothing is delivered from it.

use std::{fs, path::Path};

use outbox_relay::store::{self, Store};

use crate::support::{Database, config, database};

const SHAPE: &str = include_str!("../../sql/shape.sql");

/// What the check says after a change; empty if it is content.
async fn after(database: &Database, change: &str) -> String {
    let client = database.connect().await;
    client.batch_execute(change).await.unwrap();
    let said = Store::new(&config(&database.url)).unwrap().check().await;
    said.err().map_or(String::new(), |error| error.to_string())
}

#[tokio::test]
async fn the_migrations_make_what_the_check_expects() {
    let database = database().await;
    let client = database.connect().await;
    client
        .batch_execute("set search_path = pg_catalog, pg_temp")
        .await
        .unwrap();
    let rows = client.query(SHAPE, &[]).await.unwrap();
    let lines: Vec<String> = rows
        .iter()
        .map(|row| format!("{}\t{}\n", row.get::<_, &str>(0), row.get::<_, &str>(1)))
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/shape.txt");
    if std::env::var_os("OUTBOX_WRITE_SHAPE").is_some() {
        fs::write(&path, lines.concat()).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    let differs = lines
        .iter()
        .find(|line| !expected.contains(line.as_str()))
        .map(|line| line.as_str());
    assert!(
        lines.concat() == expected,
        "sql/shape.txt is not what the migrations make: OUTBOX_WRITE_SHAPE=1 scripts/test shape::the_migrations ({differs:?})"
    );
}

#[tokio::test]
async fn each_thing_that_is_missing_or_another_is_named() {
    for (change, says) in [
        (
            "drop index outbox.messages_ready",
            "index messages_ready is missing",
        ),
        (
            "drop index outbox.messages_waiting;
             create index messages_waiting on outbox.messages (topic, due_at) where due_at is not null",
            "index messages_waiting is `CREATE INDEX messages_waiting ON outbox.messages USING btree topic, due_at WHERE due_at IS NOT NULL ` and should be `CREATE INDEX messages_waiting ON outbox.messages USING btree topic, endpoint, due_at, seq WHERE due_at IS NOT NULL `",
        ),
        (
            "alter table outbox.dead_letters alter payload type jsonb",
            "column dead_letters.payload is `jsonb` and should be `json`",
        ),
        (
            "alter table outbox.held_keys drop column seq",
            "column held_keys.seq is missing",
        ),
        (
            "alter table outbox.messages drop constraint \"headers: at most 16 kB in all\"",
            "constraint messages \"headers: at most 16 kB in all\" is missing",
        ),
        (
            "alter table outbox.epoch set logged",
            "table epoch is `plain logged` and should be `plain unlogged`",
        ),
        (
            "alter sequence outbox.messages_seq_seq cache 100",
            "sequence messages_seq_seq is `increment 1 cache 100` and should be `increment 1 cache 1`",
        ),
        (
            "alter function outbox.resume strict",
            "function resume is another one",
        ),
        (
            "create or replace function outbox.resume(p_endpoint text, p_why text default null, p_by text default current_user) returns boolean language sql as 'select true'",
            "function resume is another one",
        ),
        (
            "alter function outbox.maintain_partitions set search_path = public",
            "function maintain_partitions is another one",
        ),
        (
            "drop function outbox.functions_digest()",
            "function functions_digest() is missing",
        ),
        (
            "alter table outbox.meta drop column functions",
            "column meta.functions is missing",
        ),
    ] {
        let database = database().await;
        let said = after(&database, change).await;
        assert!(
            said.starts_with("the schema was altered since it was migrated: ")
                && said.contains(&format!(": {says}"))
                && said.contains("`outbox-relay migrate`"),
            "{change}: {said}"
        );
    }
}

#[tokio::test]
async fn functions_are_restored_by_a_migration() {
    let database = database().await;
    let change = "drop function outbox.resume(text, text, text);
        create or replace function outbox.hang_up() returns boolean language sql as 'select true'";
    let said = after(&database, change).await;
    let both = "function hang_up is another one; function resume(p_endpoint text, p_why text, p_by text) is missing. ";
    assert!(said.contains(both), "{said}");
    let store = database.store();
    store.migrate(None, false).await.unwrap();
    assert_eq!(after(&database, "").await, "");
}

#[tokio::test]
async fn functions_that_another_release_migrated_are_none_that_were_altered() {
    let database = database().await;
    let change = "create or replace function outbox.resume(p_endpoint text, p_why text default null, p_by text default current_user) returns boolean language sql as 'select true';
        update outbox.meta set functions = outbox.functions_digest()";
    assert_eq!(after(&database, change).await, "");
    let alterations = database.store().alterations().await.unwrap();
    assert_eq!(alterations.newer, ["function resume"]);
    assert!(alterations.broken.is_empty() && alterations.foreign.is_empty());
}

#[tokio::test]
async fn what_others_added_stops_nothing_and_is_named_where_it_can_refuse_a_row() {
    let database = database().await;
    let change = "alter table outbox.messages add column tenant text;
        create index mine on outbox.messages (created_at);
        create table outbox.own (n int primary key, m int not null);
        create table public.theirs (id uuid, endpoint text, foreign key (id, endpoint) references outbox.messages);
        create unique index one_each on outbox.messages (topic, key);
        create function public.look() returns trigger language plpgsql as 'begin return new; end';
        create trigger look before insert on outbox.messages for each row execute function public.look()";
    assert_eq!(after(&database, change).await, "");
    let foreign = database.store().alterations().await.unwrap().foreign;
    let begins = [
        "trigger messages.look (CREATE TRIGGER",
        "constraint messages \"theirs_id_endpoint_fkey\" of public.theirs (FOREIGN KEY",
        "index one_each (CREATE UNIQUE INDEX",
    ];
    assert_eq!(foreign.len(), begins.len(), "{foreign:?}");
    for (found, begin) in foreign.iter().zip(begins) {
        assert!(found.starts_with(begin), "{foreign:?}");
    }
}

/// A function of somebody else's in this schema is none that was altered, whoever migrated last.
#[tokio::test]
async fn what_can_be_tuned_is_no_reason_to_refuse() {
    let database = database().await;
    let change = "alter index outbox.messages_ready set (fillfactor = 70);
        alter index outbox.messages_keyed set (deduplicate_items = off);
        alter table outbox.messages set (autovacuum_vacuum_threshold = 1);
        alter table outbox.messages enable row level security;
        alter table outbox.messages disable trigger messages_ring;
        drop index outbox.attempts_id;
        alter function outbox.reap set work_mem = '64MB';
        create or replace function outbox.resume(p_endpoint text, p_why text default null, p_by text default current_user) returns boolean language sql as 'select true';
        update outbox.meta set functions = outbox.functions_digest();
        create function outbox.enqueue() returns int language sql as 'select 1'";
    assert_eq!(after(&database, change).await, "");
    let all = database.store().alterations().await.unwrap();
    assert_eq!(all.newer, ["function resume"]);
    assert_eq!(all.tuned.len(), 2, "{all:?}");
    assert_eq!(all.tuned[0], "index attempts_id is missing");
    assert!(all.tuned[1].starts_with("settings of reap is `"), "{all:?}");
    assert!(all.foreign.is_empty(), "{all:?}");
}

#[tokio::test]
async fn every_function_is_in_the_digest() {
    let database = database().await;
    let client = database.connect().await;
    let names =
        "select p.proname::text from pg_proc p where p.pronamespace = 'outbox'::regnamespace";
    let rows = client.query(names, &[]).await.unwrap();
    assert!(rows.len() > 20);
    let text = include_str!("../../sql/functions/functions_digest.sql");
    for row in rows {
        let name = format!("'{}'", row.get::<_, &str>(0));
        assert!(text.contains(&name), "{name}");
    }
}

/// Whoever can't wait says so; a relay that is at work asks no more.
#[tokio::test]
async fn an_altered_schema_can_be_put_up_with() {
    let database = database().await;
    let said = after(&database, "drop index outbox.messages_ready").await;
    assert!(
        said.ends_with("say altered_schema = \"warn\" under [database]"),
        "{said}"
    );
    let strict = config(&database.url);
    Store::new(&strict).unwrap().check_again().await.unwrap();
    let lenient = store::Config {
        lenient: true,
        ..strict
    };
    let notes = Store::new(&lenient).unwrap().check().await.unwrap();
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].contains("index messages_ready is missing"),
        "{notes:?}"
    );
}

/// How the server prints what it is asked for is a setting, of a role or of a session that a pooler shares.
#[tokio::test]
async fn another_way_of_printing_is_no_alteration() {
    let database = database().await;
    let change = format!(
        "alter database {} set quote_all_identifiers = on; alter database {0} set standard_conforming_strings = off;
         alter database {0} set search_path = outbox, public; alter database {0} set bytea_output = 'escape';
         alter database {0} set extra_float_digits = 0",
        database.name
    );
    assert_eq!(after(&database, &change).await, "");
    let row = "create function outbox.more() returns int language sql as 'select 1'";
    assert_eq!(after(&database, row).await, "");
    database.store().migrate(None, false).await.unwrap();
    assert_eq!(after(&database, "").await, "");
}

/// A dump has its conditions as the server prints them, and they come back with other parentheses.
#[tokio::test]
async fn a_dump_that_was_restored_is_the_same_schema() {
    let database = database().await;
    let again = "do $$
        declare v record;
        begin
            for v in select c.conname, c.conrelid::regclass as t, pg_get_constraintdef(c.oid) as def
                       from pg_constraint c
                      where c.connamespace = 'outbox'::regnamespace and c.contype = 'c'
            loop
                execute format('alter table %s drop constraint %I', v.t, v.conname);
                execute format('alter table %s add constraint %I %s', v.t, v.conname, v.def);
            end loop;
        end $$";
    let client = database.connect().await;
    let definitions =
        "select md5(string_agg(pg_get_constraintdef(oid), ',' order by conname)) from pg_constraint
                        where connamespace = 'outbox'::regnamespace and contype = 'c'";
    let before: String = client.query_one(definitions, &[]).await.unwrap().get(0);
    assert_eq!(after(&database, again).await, "");
    let now: String = client.query_one(definitions, &[]).await.unwrap().get(0);
    assert_ne!(before, now, "the case that this is about");
}
