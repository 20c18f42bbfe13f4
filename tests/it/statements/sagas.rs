//! Sagas that are over cost nothing, however many there are.

use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Session, watch};
use crate::outbox::Outbox;

/// Many that are over, and a few of each other kind.
const FILL: &str = r#"
    set synchronous_commit = off;
    insert into outbox.sagas (name, key, input, steps, status, created_at, finished_at, deadline_at, trail, message)
    select 'order', 'k' || n, to_json(n),
           '[{"name": "a", "to": "e", "do": "/a", "undo": "/b"}, {"name": "b", "to": "e", "do": "/b"}]',
           case when n % 1000 = 0 then 'parked' when n % 1000 = 1 then 'running' when n % 1000 = 2 then 'new'
                when n % 2 = 0 then 'succeeded' else 'compensated' end,
           now() - interval '1 s' * n, case when n % 1000 > 2 then now() end,
           case when n % 1000 = 1 then now() + interval '1 h' * (n % 3 - 1) when n % 1000 > 2 then now() - interval '1 h' end,
           case when n % 1000 = 0 then '[{"step": "a", "phase": "do", "event": "unknown"}]' else '[]' end::jsonb,
           case when n % 1000 in (0, 1) then gen_random_uuid() end
      from generate_series(1, 100000) n;
    insert into outbox.sagas (name, key, created_at) select 'other', 'k' || n, now() from generate_series(1, 1000) n;
    insert into outbox.messages (id, topic, endpoint, key, payload, step, due_at)
    select s.message, 'saga:order', 'e', s.key, '{}', jsonb_build_object('saga', s.id), now() + interval '1 h'
      from outbox.sagas s where s.status = 'running';
    insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size, topic,
        endpoint, reason, step)
    select s.message, 'e', now(), now(), 1, 3, 0, 0, 0, 8, 'saga:order', 'e', 'attempts', jsonb_build_object('saga', s.id)
      from outbox.sagas s where s.status = 'parked';
    insert into outbox.lanes (topic, endpoint) values ('saga:order', 'e');"#;

async fn find(session: &Session, name: Option<&str>, status: Option<&str>) {
    let (none, limit) = (None::<&str>, 20_i32);
    let mut after = None::<Value>;
    for _ in 0..2 {
        let parameters: [&(dyn ToSql + Sync); 9] = [
            &name, &none, &status, &none, &none, &none, &none, &after, &limit,
        ];
        let rows = session.run("find_sagas", &parameters).await;
        let last: Value = serde_json::from_str(rows.last().unwrap().get("row")).unwrap();
        after = Some(last["place"].clone());
    }
}

#[tokio::test]
async fn what_there_is_to_do_is_found_by_an_index() {
    let outbox = Outbox::new().await;
    outbox.run(FILL).await;
    for statistics in ["", "analyze"] {
        outbox.run(statistics).await;
        for mode in ["auto", "force_generic_plan"] {
            let look = async |session: &Session| {
                let none = None::<&str>;
                let plans = r#"{"another": [{"name": "a", "to": "e", "do": "/a"}]}"#;
                session.run("discover", &[&false, &vec!["another"]]).await;
                let tended = session.run("tend_sagas", &[&plans, &10_i32]).await;
                let (begun, back): (i32, i32) = (tended[0].get(0), tended[0].get(1));
                assert_eq!((begun, back), (10, 10));
                find(session, None, None).await;
                find(session, None, Some("parked")).await;
                find(session, Some("order"), Some("parked")).await;
                session.run("forget_sagas", &[&60.0_f64, &100_i64]).await;
                let ids = "select id from outbox.sagas where status = 'parked' limit 4";
                let rows = session.client.query(ids, &[]).await.unwrap();
                let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
                session.run("show_saga", &[&ids[0]]).await;
                let resume: [&(dyn ToSql + Sync); 4] = [&ids[0], &false, &none, &none];
                session.run("resume_saga", &resume).await;
                session.run("skip_step", &[&ids[1], &none, &none]).await;
                session.run("cancel_saga", &[&ids[2], &none, &none]).await;
                let rerun: [&(dyn ToSql + Sync); 5] = [&ids[3], &none, &none, &none, &none];
                session.run("rerun_saga", &rerun).await;
            };
            let (plans, faults) = watch(&outbox, mode, look).await;
            assert!(plans > 40, "{plans} plans were seen");
            assert!(
                faults.is_empty(),
                "{statistics}, {mode}: {}",
                faults.join("\n")
            );
        }
    }
}
