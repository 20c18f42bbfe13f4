//! The example that people run and copy from: what `scripts/demo-saga` runs, on the tests' server.
use std::{env, process::Stdio};

use tokio::process::Command;

use crate::support::database;

/// One of the variables that tell the tests where programs are.
fn told(name: &str) -> String {
    #[allow(
        clippy::disallowed_methods,
        reason = "it is not configuration of the relay, but tells the tests where they are"
    )]
    env::var(name).expect("scripts/test sets it: run the tests with that")
}

#[tokio::test]
async fn the_example_ends_with_books_that_agree() {
    let database = database().await;
    let output = Command::new(told("OUTBOX_TEST_PYTHON"))
        .arg("scripts/demo-saga.d/demo.py")
        .arg(env!("CARGO_BIN_EXE_outbox-relay"))
        .arg(told("OUTBOX_TEST_PSQL"))
        .env("DATABASE_URL", &database.url)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    // Its app commits 61 orders, of which one is refused; nothing of this hangs on when the relay is killed.
    let verdict =
        "demo-saga: orders=61 succeeded=60 compensated=1 paid=119940 wrong=0 rolled_back_sent=0";
    assert_eq!(out.lines().last(), Some(verdict), "{out}\n{err}");
}
