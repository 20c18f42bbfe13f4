//! The charts: what they render is right, wrong values are refused, and the container that they make does its work.
use std::{fs, path::Path, process::Stdio, time::Duration};

use outbox_relay::lab::receiver::{Receiver, Reply};
use serde_json::Value;
use tokio::{process::Command, time::timeout};

use crate::support::{
    binary::Directory,
    database,
    rows::{count, insert},
    told,
};

/// Renders them as chart.py says, in a directory of its own.
async fn check(here: &Path, part: &str) {
    let root = env!("CARGO_MANIFEST_DIR");
    let checked = Command::new(told("OUTBOX_TEST_PYTHON"))
        .arg(format!("{root}/tests/it/chart.py"))
        .arg(told("OUTBOX_TEST_HELM"))
        .arg(format!("{root}/helm"))
        .args([here, Path::new(part)])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    let wrong = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}{wrong}");
    assert!(said.contains(" renderings"), "{said}");
}

#[tokio::test]
async fn each_version_of_kubernetes_takes_what_they_render_for_it() {
    let directory = Directory::new();
    let here = directory.write("here", "");
    check(here.parent().unwrap(), "versions").await;
}

#[tokio::test]
async fn they_render_what_kubernetes_takes_and_the_container_delivers() {
    let directory = Directory::new();
    let here = directory.write("here", "");
    let here = here.parent().unwrap();
    check(here, "values").await;

    // A job's own command, with its own variables, where its files are mounted. Relays that stay have the same, but for its end.
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    insert(&client, "order.created", 3).await;
    let url = directory.write("url", &database.url);
    let read = |name| -> Value {
        serde_json::from_str(&fs::read_to_string(here.join(name)).unwrap()).unwrap()
    };
    let (stays, container) = (read("container.json"), read("job.json"));
    assert_eq!(stays["env"], container["env"]);
    let arguments = container["args"].as_array().unwrap();
    let (last, others) = arguments.split_last().unwrap();
    assert_eq!(stays["args"].as_array().unwrap(), others);
    assert_eq!(last, "--until-empty");
    let mounted = |text: &str| {
        let text = text.replace("/etc/outbox-relay", &here.display().to_string());
        text.replace(
            "/run/secrets/outbox-relay/database/url",
            &url.display().to_string(),
        )
    };
    let mut relay = Command::new(env!("CARGO_BIN_EXE_outbox-relay"));
    for argument in arguments {
        relay.arg(mounted(argument.as_str().unwrap()));
    }
    for variable in container["env"].as_array().unwrap() {
        let value = variable["value"].as_str().unwrap_or("pod-1");
        let value = mounted(&value.replace("[::]:9090", "127.0.0.1:0"));
        relay.env(variable["name"].as_str().unwrap(), value);
    }
    let output = relay
        .env("OUTBOX__ENDPOINTS__BILLING__URL", receiver.url("/hook"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(Duration::from_secs(60), output).await;
    let output = output.expect("it ends by itself").unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    assert_eq!(receiver.count(), 3, "{log}");
    assert_eq!(count(&client, "messages").await, 0);
    assert!(log.contains("listening for HTTP"), "{log}");
}
