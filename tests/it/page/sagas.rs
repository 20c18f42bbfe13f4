//! Sagas on the page.
use serde_json::json;
use uuid::Uuid;

use super::{MARKUP, Stage};
use crate::support::{
    eventually,
    rows::{SOON, count, one},
};

/// Sagas that succeed: more than a page of them.
const FINE: i32 = 130;

/// Sagas that are parked, since their input is refused.
const STUCK: i32 = 4;

impl Stage {
    /// Sagas that are over, that are parked, and one that waits for ever.
    pub(super) async fn sagas(&mut self) {
        let start = format!(
            r#"insert into outbox.sagas (name, key, input, steps)
               select 'fine', 'f-' || n, json_build_object('n', n), '[{{"name": "reserve", "to": "shop", "do": "/reserve"}}]'
                 from generate_series(1, {FINE}) n;
               insert into outbox.sagas (name, key, input, deadline_at, headers, steps)
               select 'stuck', 's-' || n || $${MARKUP}$$, json_build_object('price', 12345678901234567890.50, 'markup', $${MARKUP}$$), now() + interval '1 day',
                      '{{"X-Shop": "<b>a</b>"}}', '[{{"name": "reserve", "to": "shop", "do": "/reserve"}}, {{"name": "ship", "to": "shop", "do": "/ship"}}]'
                 from generate_series(1, {STUCK}) n;
               insert into outbox.sagas (name, key, steps)
               values ('waits', 'w-1', '[{{"name": "call", "to": "nowhere", "do": "/call", "undo": "/hang-up"}}]')"#
        );
        self.client.batch_execute(&start).await.unwrap();
        let over = async || {
            count(
                &self.client,
                "sagas where status in ('succeeded', 'parked')",
            )
            .await
                == i64::from(FINE + STUCK)
        };
        eventually("they are over, or parked", SOON, over).await;
        let stuck =
            "select id from outbox.sagas where name = 'stuck' order by created_at, key limit 1";
        let waits = "select id from outbox.sagas where name = 'waits'";
        self.given["sagas"] = json!({
            "fine": FINE, "stuck": STUCK,
            "one": one::<Uuid>(&self.client, stuck).await, "waits": one::<Uuid>(&self.client, waits).await,
        });
    }
}

#[tokio::test]
async fn sagas_are_found_told_and_seen_through() {
    let mut stage = Stage::new().await;
    stage.sagas().await;
    stage.browse("sagas.mjs").await;
    let client = &stage.client;
    let told = async |event: &str, why: &str| {
        let from = format!(
            "sagas s, jsonb_array_elements(s.trail) t (line)
              where line ->> 'event' = '{event}' and line ->> 'why' = '{why}' and line ->> 'by' = 'ann'"
        );
        count(client, &from).await
    };
    assert_eq!(
        (
            told("resume_with_new_key", "mended").await,
            told("rerun", "another input").await,
            told("skip", "by hand").await,
            told("back_unsent", "nobody answers").await,
        ),
        (1, 1, i64::from(STUCK) - 1, 1)
    );
    let input = "select input::text from outbox.sagas where generation = 1";
    let input: String = one(client, input).await;
    assert!(input.contains("12345678901234567890.50"), "{input}");
}
