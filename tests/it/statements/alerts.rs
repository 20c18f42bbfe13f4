//! What is looked for every half minute costs the same however long the history and the queue are.

use super::watch;
use crate::outbox::Outbox;

/// Hours of attempts, of which one in ten failed, dead letters of a day, and a queue.
const FILL: &str = "
    set synchronous_commit = off; set timezone = 'UTC';
    create table outbox.attempts_before partition of outbox.attempts for values from (current_date - 1) to (current_date);
    insert into outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, outcome, settlement, relay)
    select now() - interval '200 ms' * n, interval '20 ms',
           gen_random_uuid(), n, 0, 1, 't', 'e' || n % 10, case when n % 10 = 0 then 'unavailable' else 'success' end,
           case when n % 10 = 0 then 'retry' else 'delivered' end, 'relay'
      from generate_series(1, 100000) n;
    insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size, topic,
        endpoint, reason)
    select gen_random_uuid(), '', now() - interval '1 s' * n, now(), n, 3, 0, 0, 0, 8, 't', 'e' || n % 10, 'rejected'
      from generate_series(1, 80000) n;
    insert into outbox.messages (topic, payload, created_at, due_at)
    select 't' || n % 10, to_json(n), now() - interval '1 hour', case when n % 2 = 0 then now() - interval '1 hour' end from generate_series(1, 100000) n;
    insert into outbox.lanes (topic, leads_to) select 't' || n, array['e' || n] from generate_series(0, 9) n;
    insert into outbox.endpoints (endpoint) select 'e' || n from generate_series(0, 9) n;";

#[tokio::test]
async fn what_is_wrong_is_found_by_an_index() {
    let outbox = Outbox::new().await;
    outbox.run(FILL).await;
    for statistics in ["", "analyze"] {
        outbox.run(statistics).await;
        for mode in ["auto", "force_generic_plan"] {
            let look = async |session: &super::Session| {
                outbox
                    .run("update outbox.watching set watched_at = null")
                    .await;
                let none = None::<&str>;
                let rows = session
                    .run(
                        "watch",
                        &[
                            &30.0_f64, &60.0_f64, &120.0_f64, &0.1_f64, &10_i32, &1_i32, &60.0_f64,
                            &60.0_f64, &60.0_f64, &1_i32, &true, &none,
                        ],
                    )
                    .await;
                assert!(rows.len() > 11, "{}", rows.len());
                session.run("take_notice", &[&1.0_f64]).await;
                session.run("alerts", &[]).await;
            };
            let (plans, faults) = watch(&outbox, mode, look).await;
            assert!(plans > 8, "{plans} plans were seen");
            assert!(
                faults.is_empty(),
                "{statistics}, {mode}: {}",
                faults.join("\n")
            );
        }
    }
}
