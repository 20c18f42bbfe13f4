//! What a plan may be: the same to the database and to the configuration.
use std::time::Duration;

use outbox_relay::saga::{OnExhausted, Plan, Planned};

use crate::support::database;

/// A plan that is wrong in one place, and what is said.
const WRONG: [(&str, &str); 26] = [
    (r#"{}"#, "steps: an array of 1 to 50 steps"),
    ("[]", "steps: an array of 1 to 50 steps"),
    (r#""x""#, "steps: an array of 1 to 50 steps"),
    ("[1]", "steps[0]: an object with name, to and do"),
    ("[{}]", "steps[0].do: a path that begins with /"),
    (
        r#"[{"do": "/a", "name": "a"}]"#,
        "steps[0].to: the name of an endpoint",
    ),
    (
        r#"[{"do": "/a", "to": "e"}]"#,
        "steps[0].name: 1 to 64 letters",
    ),
    (
        r#"[{"name": "a b", "to": "e", "do": "/a"}]"#,
        "steps[0].name: 1 to 64 letters",
    ),
    (
        r#"[{"name": ".a", "to": "e", "do": "/a"}]"#,
        "steps[0].name: 1 to 64 letters",
    ),
    (
        r#"[{"name": "a", "to": "", "do": "/a"}]"#,
        "steps[0].to: the name of an endpoint",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "a"}]"#,
        "steps[0].do: a path",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a?b"}]"#,
        "steps[0].do: a path",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a/../b"}]"#,
        "steps[0].do: a path",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a/%2E%2e"}]"#,
        "steps[0].do: a path",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a%2"}]"#,
        "steps[0].do: a path",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "undo": 1}]"#,
        "steps[0].undo: a path",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "pivot": "yes"}]"#,
        "steps[0].pivot: true or false",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "timeout": "5s"}]"#,
        "steps[0].timeout: a number of seconds",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "timeout": 0}]"#,
        "steps[0].timeout: a number of seconds",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "on_exhausted": "retry"}]"#,
        "steps[0].on_exhausted: park or compensate",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "undone": "/b"}]"#,
        "steps[0].undone: there is no such member",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a"}, {"name": "a", "to": "e", "do": "/a"}]"#,
        "steps[1].name: an earlier step is called a, too",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "pivot": true}, {"name": "b", "to": "e", "do": "/b", "pivot": true}]"#,
        "steps[1].pivot: there is one already, a",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "pivot": true}, {"name": "b", "to": "e", "do": "/b", "undo": "/c"}]"#,
        "steps[1].undo: after the pivot a there is no way back",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "pivot": true, "on_exhausted": "compensate"}]"#,
        "steps[0].on_exhausted: from the pivot a on there is no way back",
    ),
    (
        r#"[{"name": "a", "to": "e", "do": "/a", "lapse": 5}]"#,
        "steps[0].lapse: the step is not async",
    ),
];

#[tokio::test]
async fn an_insert_with_a_wrong_plan_is_refused_with_the_place() {
    let database = database().await;
    let client = database.connect().await;
    // As the application: the constraint runs with its rights.
    client
        .batch_execute("set role outbox_writer")
        .await
        .unwrap();
    for (plan, want) in WRONG {
        let insert =
            "insert into outbox.sagas (name, key, steps) values ('order', 'k', $1::text::jsonb)";
        let error = client.execute(insert, &[&plan]).await.unwrap_err();
        let error = error
            .as_db_error()
            .unwrap_or_else(|| panic!("{plan}: {error}"));
        assert!(
            error.message().starts_with(want),
            "{plan}: {}",
            error.message()
        );
        assert_eq!(error.code().code(), "23514", "{plan}");
    }
    let start = "insert into outbox.sagas (name, key, steps) values ('order', 'k', '[{\"name\": \"a\", \"to\": \"e\", \"do\": \"/\"}]')
                 on conflict (name, key) do nothing returning id";
    assert_eq!(client.query(start, &[]).await.unwrap().len(), 1);
    assert_eq!(client.query(start, &[]).await.unwrap().len(), 0);
    // A name alone stands for the plan of a configuration.
    let named = "insert into outbox.sagas (name, key) values ('order', 'l')";
    assert_eq!(client.execute(named, &[]).await.unwrap(), 1);
    for theirs in ["status", "message", "outputs", "trail", "wanted"] {
        let insert =
            format!("insert into outbox.sagas (name, key, {theirs}) values ('order', 'm', null)");
        let error = client.execute(&insert, &[]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{theirs}");
    }
    let step = "insert into outbox.messages (topic) values ('saga:order')";
    let error = client.execute(step, &[]).await.unwrap_err();
    let name = error
        .as_db_error()
        .and_then(|error| error.constraint())
        .unwrap();
    assert_eq!(
        name,
        "topic: one that begins with saga: is for steps of outbox.sagas"
    );
}

#[tokio::test]
async fn what_a_configuration_says_is_a_plan_to_the_database() {
    let database = database().await;
    let client = database.connect().await;
    let step = |name: &str| Planned {
        name: name.into(),
        to: "stock".into(),
        r#do: "/do".into(),
        undo: Some("/undo".into()),
        pivot: false,
        timeout: Some(Duration::from_millis(1500)),
        retry: Some("payments".into()),
        undo_retry: Some("forever".into()),
        on_exhausted: OnExhausted::Compensate,
        is_async: true,
        lapse: Some(Duration::from_secs(60)),
    };
    let pivot = Planned {
        pivot: true,
        ..step("b")
    };
    let plan = Plan {
        name: "order".into(),
        steps: vec![step("a"), pivot.clone()],
    };
    assert_eq!(plan.refusal(), None);
    let check = "select outbox.check_plan($1::text::jsonb)";
    let right: bool = client
        .query_one(check, &[&plan.to_json().to_string()])
        .await
        .unwrap()
        .get(0);
    assert!(right);

    // What the one refuses, the other does in the same words.
    let plain = |name: &str| Planned {
        undo: None,
        undo_retry: None,
        on_exhausted: OnExhausted::Park,
        ..step(name)
    };
    let last = Planned {
        pivot: true,
        ..plain("b")
    };
    let none_async = Planned {
        is_async: false,
        ..plain("c")
    };
    for steps in [
        vec![step("a"), step("a")],
        vec![
            last.clone(),
            Planned {
                name: "c".into(),
                ..last.clone()
            },
        ],
        vec![last.clone(), step("c")],
        vec![Planned {
            on_exhausted: OnExhausted::Compensate,
            ..last.clone()
        }],
        vec![
            last,
            Planned {
                on_exhausted: OnExhausted::Compensate,
                ..plain("c")
            },
        ],
        vec![Planned {
            undo_retry: Some("x".into()),
            ..plain("c")
        }],
        vec![none_async],
    ] {
        let plan = Plan {
            name: "order".into(),
            steps,
        };
        let (position, key, wrong) = plan.refusal().unwrap();
        let error = client
            .query_one(check, &[&plan.to_json().to_string()])
            .await
            .unwrap_err();
        let said = error.as_db_error().unwrap().message().to_owned();
        assert_eq!(said, format!("steps[{position}].{key}: {wrong}"));
    }
}
