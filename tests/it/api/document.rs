//! The API's document: it has what the API has, and a tool that nobody here wrote finds the API as the document says.
use std::{collections::BTreeSet, env, fs, path::Path, process::Stdio};

use tokio::process::Command;
use uuid::Uuid;

use super::{OPERATOR, Stage};
use crate::support::{binary::Directory, client, rows::one};

/// Each path with its methods, as the router has it.
fn routed() -> BTreeSet<String> {
    let source = fs::read_to_string("src/admin/api.rs").unwrap();
    let source: String = source.split_whitespace().collect();
    let mut all = BTreeSet::new();
    for route in source.split(".route(\"").skip(1) {
        let (path, rest) = route.split_once('"').unwrap();
        let rest = rest.split(".route(").next().unwrap();
        let rest = rest.split(".method_not_allowed_fallback").next().unwrap();
        for method in ["get", "post"] {
            if !path.contains('*') && rest.contains(&format!("{method}(")) {
                all.insert(format!("{method} {path}"));
            }
        }
    }
    all
}

#[tokio::test]
async fn it_has_every_path_and_anybody_may_read_it() {
    let stage = Stage::new(0).await;
    let url = format!("http://{}/v1/openapi.json", stage.relay.address);
    let text = client().get(url).send().await.unwrap();
    let document: serde_json::Value = serde_json::from_str(&text.text().await.unwrap()).unwrap();
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            if method != "parameters" {
                described.insert(format!("{method} {path}"));
            }
        }
    }
    assert!(routed().len() > 10);
    assert_eq!(described, routed());
}

/// Schemathesis makes requests that the document allows, and others, and compares every answer with it.
#[tokio::test]
async fn an_independent_tool_finds_the_api_as_it_is_described() {
    #[allow(
        clippy::disallowed_methods,
        reason = "it is not configuration of the relay, but tells the tests where it is"
    )]
    let python = env::var("OUTBOX_TEST_PYTHON")
        .expect("OUTBOX_TEST_PYTHON is not set: run the tests with scripts/test, which sets it");
    let stage = Stage::new(3).await;
    let dead = stage.dead(3).await;
    let insert = "insert into outbox.messages (topic, due_at) values ('t', now() + interval '1 day') returning id";
    let pending: Uuid = one(&stage.client, insert).await;
    let saga = "insert into outbox.sagas (name, key, steps) values ('s', gen_random_uuid()::text,
        '[{\"name\": \"a\", \"to\": \"nowhere\", \"do\": \"/a\"}]') returning id";
    let sagas: [Uuid; 2] = [
        one(&stage.client, saga).await,
        one(&stage.client, saga).await,
    ];
    let directory = Directory::new();
    let url = format!("http://{}/v1/openapi.json", stage.relay.address);
    let tool = Path::new(&python).with_file_name("schemathesis");
    let config = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/api/schemathesis.toml"
    );
    let output = Command::new(tool)
        .args(["--config-file", config, "run", &url])
        .envs([
            ("DEAD_1", dead[0].to_string()),
            ("DEAD_2", dead[1].to_string()),
            ("DEAD_3", dead[2].to_string()),
            ("PENDING", pending.to_string()),
            ("SAGA_1", sagas[0].to_string()),
            ("SAGA_2", sagas[1].to_string()),
        ])
        .arg(format!("--header=Authorization: Bearer {OPERATOR}"))
        .current_dir(directory.write("here", "").parent().unwrap())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // It looked at all of them, but for the document itself.
    let tested = said
        .split("Tested:")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    assert_eq!(tested, Some(&*(routed().len() - 1).to_string()), "{said}");
}
