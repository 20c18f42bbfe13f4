//! Sessions that others use as well, and what they leave on them; and roles that carry the same.
use outbox_relay::{
    lab::receiver::{Reply, Request},
    store::Store,
};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::support::{
    direct, eventually,
    pgbouncer::PgBouncer,
    relay::start,
    rows::{SOON, all_settled, assert_nothing_left, count, insert, one},
    scene::Scene,
};

/// What somebody may have set who thinks that the session is theirs: each would change what a statement means, or how it is planned,
/// or how long it may take, or whether its commit lasts.
const SETTINGS: [(&str, &str); 37] = [
    ("search_path", "public"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_deferrable", "on"),
    ("timezone", "Pacific/Chatham"),
    ("datestyle", "SQL, DMY"),
    ("intervalstyle", "sql_standard"),
    ("bytea_output", "escape"),
    ("extra_float_digits", "-15"),
    ("standard_conforming_strings", "off"),
    ("escape_string_warning", "on"),
    ("array_nulls", "off"),
    ("transform_null_equals", "on"),
    ("quote_all_identifiers", "on"),
    ("xmlbinary", "hex"),
    ("row_security", "off"),
    ("default_toast_compression", "pglz"),
    ("session_replication_role", "replica"),
    ("synchronous_commit", "off"),
    // Short, and long enough for a BEGIN on a busy machine.
    ("statement_timeout", "200"),
    ("lock_timeout", "1"),
    ("idle_in_transaction_session_timeout", "200"),
    ("client_min_messages", "debug5"),
    ("enable_indexscan", "off"),
    ("enable_indexonlyscan", "off"),
    ("enable_nestloop", "off"),
    ("enable_material", "off"),
    ("enable_hashagg", "off"),
    ("enable_partition_pruning", "off"),
    ("constraint_exclusion", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("from_collapse_limit", "1"),
    ("join_collapse_limit", "1"),
    ("geqo_threshold", "2"),
    ("work_mem", "64"),
    ("jit_above_cost", "0"),
    ("min_parallel_table_scan_size", "0"),
];

/// Says what a settle has set when it commits; also under `session_replication_role`.
const WITNESS: &str = "
    create table public.seen (who text, durable text, isolation text, role text, path text);
    grant all on public.seen to public;
    create function public.witness() returns trigger language plpgsql as $$
        begin
            insert into public.seen values (tg_table_name, current_setting('synchronous_commit'), current_setting('transaction_isolation'),
                current_user, replace(current_setting('search_path'), chr(34), ''));
            return null;
        end $$;
    create constraint trigger witness after delete on outbox.messages deferrable initially deferred
        for each row when (old.expires_at is null or old.expires_at > old.created_at) execute function public.witness();
    alter table outbox.messages enable always trigger witness";

/// Refuses what is bad for ever, and the first try of what is shy.
fn receive(request: &Request) -> Reply {
    match &request.body[..] {
        b"\"bad\"" => Reply::status(422),
        b"\"shy\"" if request.header("outbox-attempt") == Some("1") => Reply::status(503),
        _ => Reply::status(200),
    }
}

/// Delivers rows of all kinds by this way and looks at each of them.
async fn delivers(scene: &Scene, url: &str) {
    let insert = "insert into outbox.messages (topic, key, payload, expires_at) values
        ('t', 'k', '{\"n\": 1.50, \"word\": \"Grüße \\u20ac\"}', null), ('t', 'k', '\"shy\"', now() + interval '1 hour'),
        ('t', null, '\"bad\"', null), ('t', null, '\"old\"', now() - interval '1 hour');
        insert into outbox.messages (topic, body, content_type, headers) values ('t', '\\x00ff5c27', 'x/y', '{\"X-A\": \"\\\\ b\"}');
        insert into outbox.messages (topic, payload) select 't', to_json(n) from generate_series(1, 200) n";
    scene.client.batch_execute(insert).await.unwrap();
    let mut relay = scene.relay();
    relay.database = direct(url);
    let relay = start(relay);
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_nothing_left(&scene.client).await;

    let requests = scene.receiver.requests();
    let bodies = |want: &[u8]| {
        requests
            .iter()
            .filter(|request| &request.body[..] == want)
            .count()
    };
    assert_eq!(
        bodies("{\"n\": 1.50, \"word\": \"Grüße \\u20ac\"}".as_bytes()),
        1
    );
    assert_eq!(
        (bodies(b"\"shy\""), bodies(b"\"bad\""), bodies(b"\"old\"")),
        (2, 1, 0)
    );
    assert_eq!(bodies(b"\x00\xff\\'"), 1);
    let raw = requests
        .iter()
        .find(|request| request.header("content-type") == Some("x/y"));
    assert_eq!(raw.unwrap().header("x-a"), Some("\\ b"));
    assert_eq!(requests.len(), 205);
    let ends = "select string_agg(reason || ' ' || payload::text, ', ' order by reason) from outbox.dead_letters";
    let dead = one::<String>(&scene.client, ends).await;
    assert_eq!(dead, "expired \"old\", rejected \"bad\"");
    assert_eq!(count(&scene.client, "delivered").await, 203);
    // The time of each attempt is now, in whatever zone somebody lives.
    let odd = "attempts where abs(extract(epoch from now() - started_at)) > 60 or duration < '0' or duration > '10 s'";
    assert_eq!(count(&scene.client, odd).await, 0);
    let seen = "select coalesce(string_agg(distinct concat_ws(' ', durable, isolation, path), ', '), '') from public.seen";
    let seen = one::<String>(&scene.client, seen).await;
    assert_eq!(seen, "on read committed pg_catalog, pg_temp");
}

/// Clients of a pooler that hold so many of its sessions at once.
async fn clients(url: &str, number: usize) -> (Vec<Client>, JoinSet<()>) {
    let mut drivers = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..number {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        drivers.spawn(async move {
            connection.await.ok();
        });
        client.batch_execute("begin").await.unwrap();
        clients.push(client);
    }
    (clients, drivers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_left_on_shared_sessions_changes_nothing() {
    let scene = Scene::new(receive).await;
    scene.client.batch_execute(WITNESS).await.unwrap();
    let nobody = format!("nobody_{}", scene.database.name);
    let role = format!("create role {nobody}");
    scene.client.batch_execute(&role).await.unwrap();
    let pooler = PgBouncer::with(&scene.database.url, 2).await;
    let url = pooler.url(&scene.database.url);
    let (others, _drivers) = clients(&url, 2).await;
    for other in &others {
        for (name, value) in SETTINGS {
            let set = format!("set {name} = {}", quoted(value));
            other.batch_execute(&set).await.unwrap();
        }
        let set = format!("set role {nobody}");
        other.batch_execute(&set).await.unwrap();
    }
    for other in &others {
        other.batch_execute("commit").await.unwrap();
    }
    // They are as they were left, both of them.
    let left = "begin; set local statement_timeout = 0; set local jit = off;
        select current_user::text || current_setting('lock_timeout') || current_setting('synchronous_commit'); commit";
    for other in &others {
        assert_eq!(said(other, left).await, format!("{nobody}1msoff"));
    }
    Store::new(&direct(&url)).unwrap().check().await.unwrap();
    delivers(&scene, &url).await;
    for other in &others {
        assert_eq!(
            said(other, left).await,
            format!("{nobody}1msoff"),
            "and stay so"
        );
    }
    drop(others);
    let role = format!("drop role {nobody}");
    eventually("the role is free", SOON, async || {
        scene.client.batch_execute(&role).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_role_carries_changes_nothing() {
    let scene = Scene::new(receive).await;
    scene.client.batch_execute(WITNESS).await.unwrap();
    let carrier = format!("carrier_{}", scene.database.name);
    let role = format!("create role {carrier} login superuser");
    scene.client.batch_execute(&role).await.unwrap();
    for (name, value) in SETTINGS {
        let alter = format!("alter role {carrier} set {name} = {}", quoted(value));
        scene.client.batch_execute(&alter).await.unwrap();
    }
    let mut url: reqwest::Url = scene.database.url.parse().unwrap();
    url.set_username(&carrier).unwrap();
    delivers(&scene, url.as_str()).await;
    // A role that it is to take is taken.
    let becomes = format!(
        "alter role {carrier} reset all; alter role {carrier} set role = outbox_relay; grant outbox_relay to {carrier}; truncate public.seen"
    );
    scene.client.batch_execute(&becomes).await.unwrap();
    insert(&scene.client, "t", 1).await;
    let mut relay = scene.relay();
    relay.database = direct(url.as_str());
    let relay = start(relay);
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    let who = "select string_agg(distinct role, ' ') from public.seen";
    assert_eq!(one::<String>(&scene.client, who).await, "outbox_relay");
    let drop = format!("drop role {carrier}");
    eventually("the role is free", SOON, async || {
        scene.client.batch_execute(&drop).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_leaves_nothing_on_a_shared_session() {
    // All that a session can keep, but for what the pooler itself sets.
    const KEPT: &str = "select concat_ws('; ',
        (select string_agg(name || ' ' || setting, ', ' order by name) from pg_settings
          where source = 'session' and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')),
        (select string_agg(name || ' ' || statement, ', ') from pg_prepared_statements where not from_sql),
        (select string_agg(name, ', ') from pg_cursors),
        (select string_agg(c, ', ') from pg_listening_channels() c),
        (select string_agg(locktype, ', ') from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'),
        (select string_agg(relname, ', ') from pg_class where relpersistence = 't'))";
    let scene = Scene::new(receive).await;
    scene.client.batch_execute(WITNESS).await.unwrap();
    let pooler = PgBouncer::with(&scene.database.url, 1).await;
    let url = pooler.url(&scene.database.url);
    delivers(&scene, &url).await;
    let (clients, _drivers) = clients(&url, 1).await;
    clients[0].batch_execute("commit").await.unwrap();
    let one_session = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    assert_eq!(one::<i64>(&scene.client, one_session).await, 1);
    assert_eq!(said(&clients[0], KEPT).await, "");
}

/// A list of words is none where it is quoted.
fn quoted(value: &str) -> String {
    match value.contains(',') {
        true => value.to_owned(),
        false => format!("'{value}'"),
    }
}

/// What a query says in one message: named statements belong to sessions.
async fn said(client: &Client, query: &str) -> String {
    let messages = client.simple_query(query).await.unwrap();
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            Some(row.get(0).unwrap_or_default().to_owned())
        }
        _ => None,
    });
    row.unwrap()
}
