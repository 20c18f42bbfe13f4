//! What operators ask for is found by an index too, however long the history is.

use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Session, watch};
use crate::outbox::Outbox;

/// History of a day and what was kept of it: one attempt in twenty failed.
const FILL: &str = "
    set synchronous_commit = off;
    insert into outbox.attempts (started_at, duration, id, seq, generation, attempt, status, topic, endpoint, key, outcome,
        settlement, relay, error)
    select current_date at time zone 'UTC' + interval '200 ms' * n, interval '20 ms', gen_random_uuid(), n, 0, 1, 200,
           't' || n % 10, 'e' || n % 10, case when n % 2 = 0 then 'k' || n % 50000 end,
           case when n % 20 = 0 then 'unavailable' else 'success' end, case when n % 20 = 0 then 'retry' else 'delivered' end,
           'relay ' || n % 3, case when n % 20 = 0 then 'status 503: warehouse ' || n end
      from generate_series(1, 300000) n;
    insert into outbox.delivered (delivered_at, created_at, id, seq, attempts, lost, generation, size, topic, lane_endpoint, endpoint,
        key, payload)
    select current_date at time zone 'UTC' + interval '400 ms' * (n / 64), now(), gen_random_uuid(), n, 1, 0, 0, 8, 't' || n % 10, '', 'e' || n % 10,
           'k' || n % 50000, to_json(n)
      from generate_series(1, 200000) n;
    insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size, topic,
        endpoint, reason, key, payload, last_error)
    select gen_random_uuid(), '', now() - interval '1 s' * n, now(), n, 3, 0, 0, 0, 8, 't' || n % 10, 'e' || n % 10, 'rejected',
           'k' || n % 50000, to_json(n), 'status 422: warehouse ' || n
      from generate_series(1, 100000) n;
    insert into outbox.messages (topic, key, payload, due_at)
    select 't' || n % 10, 'k' || n, to_json(n), case when n % 2 = 0 then now() end from generate_series(1, 100000) n;";

/// A filter of which one word is given.
type Word = Option<&'static str>;

/// The newest page and the one after it.
async fn list(session: &Session, state: &str, topic: Word, endpoint: Word) {
    let (none, limit) = (None::<&str>, 50_i32);
    let mut after = None::<Value>;
    for _ in 0..2 {
        let parameters: [&(dyn ToSql + Sync); 11] = [
            &state,
            &topic,
            &endpoint,
            &none,
            &none,
            &None::<i32>,
            &none,
            &none,
            &none,
            &after,
            &limit,
        ];
        let rows = session.run("list", &parameters).await;
        let last: Value = serde_json::from_str(rows.last().unwrap().get("row")).unwrap();
        after = Some(last["place"].clone());
    }
}

/// The newest page and the one after it, where there is one.
async fn history(session: &Session, endpoint: Word, key: Word, error: Word, failures: bool) {
    let (none, limit) = (None::<&str>, 50_i32);
    let mut after = None::<Value>;
    for _ in 0..2 {
        let parameters: [&(dyn ToSql + Sync); 16] = [
            &None::<Uuid>,
            &none,
            &endpoint,
            &key,
            &none,
            &none,
            &None::<i32>,
            &error,
            &none,
            &failures,
            &None::<f64>,
            &None::<i32>,
            &none,
            &none,
            &after,
            &limit,
        ];
        let rows = session.run("history", &parameters).await;
        let Some(last) = rows.last() else { return };
        let last: Value = serde_json::from_str(last.get("row")).unwrap();
        after = Some(last["place"].clone());
    }
}

/// All that an operator asks for that has an answer without a search.
async fn questions(session: &Session, dead: Uuid, delivered: Uuid, pending: Uuid) {
    for state in ["pending", "dead", "delivered"] {
        list(session, state, None, None).await;
        list(session, state, Some("t7"), None).await;
    }
    list(session, "dead", None, Some("e7")).await;
    list(session, "delivered", None, Some("e7")).await;
    history(session, None, None, None, false).await;
    history(session, None, None, None, true).await;
    history(session, Some("e0"), None, None, true).await;
    history(session, None, Some("k4712"), None, false).await;
    history(session, None, None, Some("WAREHOUSE"), false).await;
    for id in [dead, delivered, pending] {
        session.run("why", &[&id]).await;
        session.run("show", &[&id]).await;
    }
    let none = None::<&str>;
    session.run("cancel", &[&pending, &none, &none]).await;
    session
        .run("replay", &[&delivered, &none, &true, &false, &none, &none])
        .await;
    session
        .run("replay", &[&dead, &none, &false, &true, &none, &none])
        .await;
    session.run("discard", &[&dead, &none, &none, &none]).await;
    session
        .run("release_key", &[&"t1", &"k1", &none, &none, &none])
        .await;
    for (verb, source) in [
        ("replay", "dead"),
        ("replay", "delivered"),
        ("discard", "dead"),
    ] {
        let parameters: [&(dyn ToSql + Sync); 15] = [
            &verb,
            &source,
            &none,
            &Some("e7"),
            &none,
            &none,
            &None::<i32>,
            &none,
            &none,
            &none,
            &false,
            &None::<f64>,
            &none,
            &none,
            &false,
        ];
        let job: i64 = session.run("start_job", &parameters).await[0].get("job");
        for _ in 0..3 {
            session.run("run_job", &[&job, &50_i32]).await;
        }
        session.run("abort_job", &[&job]).await;
    }
    session.run("jobs", &[&None::<i64>, &50_i32]).await;
    // Of each piece of time no more rows are read than is said, however many there are; of failures too, but for what is
    // between them where they are so many that the planner prefers the index of all attempts.
    for since in [None, Some("15m"), Some("1d"), Some("30d")] {
        session.run("overview", &[&since, &8_i32]).await;
        for endpoint in [None, Some("e0")] {
            let parameters: [&(dyn ToSql + Sync); 4] = [&since, &40_i32, &endpoint, &50_i32];
            session.run("failures", &parameters).await;
        }
    }
}

#[tokio::test]
async fn what_operators_ask_for_is_found_by_an_index() {
    let outbox = Outbox::new().await;
    outbox.run(FILL).await;
    let dead = outbox
        .one("select id from outbox.dead_letters where seq = 5000", &[])
        .await;
    let delivered = outbox
        .one("select id from outbox.delivered where seq = 5000", &[])
        .await;
    let pending = outbox
        .one("select id from outbox.messages where seq = 5000", &[])
        .await;
    for statistics in [false, true] {
        if statistics {
            outbox.run("analyze outbox.attempts, outbox.delivered, outbox.dead_letters, outbox.messages").await;
        }
        let ask = async |session: &Session| questions(session, dead, delivered, pending).await;
        let (plans, faults) = watch(&outbox, "auto", ask).await;
        assert!(plans > 60, "{plans} plans were seen");
        assert!(
            faults.is_empty(),
            "analysed: {statistics}: {}",
            faults.join("\n")
        );
    }
}
