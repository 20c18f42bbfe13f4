//! What somebody at a terminal has of the command line, and what a program has of it that reads through a pipe.
use std::{fs, process::Output};

use tokio::process::Command;

use crate::support::binary::{Directory, outbox_relay};

/// It asks for no database.
const NOWHERE: &str = "postgres://127.0.0.1:1/app";

/// Expects success and nothing on standard error, and returns the answer.
async fn says(database: &str, arguments: &[&str]) -> String {
    let output = outbox_relay(database, arguments).await;
    text(output)
}

fn text(output: Output) -> String {
    let (out, err) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && err.is_empty(), "{err}");
    String::from_utf8(out).unwrap()
}

/// The subcommands that the help names.
async fn subcommands() -> Vec<String> {
    let help = says(NOWHERE, &["--help"]).await;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let list = list.split("\n\n").next().unwrap();
    let named = list.lines().filter_map(|line| line.strip_prefix("  "));
    let named = named.filter(|line| !line.starts_with(' '));
    let names: Vec<String> = named
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert!(names.len() > 15, "{names:?}");
    names
}

// === completions and the manual page ===

#[tokio::test]
async fn bash_completes_subcommands_and_flags() {
    let directory = Directory::new();
    let script = says(NOWHERE, &["completions", "bash"]).await;
    let path = directory.write("completions.bash", &script);
    let path = path.to_str().unwrap();
    let bash = async |arguments: &[&str]| {
        text(Command::new("bash").args(arguments).output().await.unwrap())
    };
    assert_eq!(bash(&["-n", path]).await, "");
    // As bash itself calls it: the words of the line, the place of the cursor, and its answer in COMPREPLY.
    let ask = "source \"$1\"; shift; COMP_WORDS=(outbox-relay \"$@\"); COMP_CWORD=$#; \
               f=$(complete -p outbox-relay | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
               \"$f\" outbox-relay \"${!#}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let complete = async |words: &[&str]| -> Vec<String> {
        let arguments = [&["--norc", "-c", ask, "bash", path], words].concat();
        let answer = bash(&arguments).await;
        answer.lines().map(str::to_owned).collect()
    };
    assert_eq!(complete(&["re"]).await, ["resume", "replay", "release-key"]);
    assert_eq!(complete(&["replay", "--dry"]).await, ["--dry-run"]);
    assert_eq!(complete(&["list", "de"]).await, ["dead", "delivered"]);
    let all = complete(&[""]).await;
    for name in subcommands().await {
        assert!(all.contains(&name), "{name} is not in {all:?}");
    }
}

#[tokio::test]
async fn other_shells_have_a_script_too() {
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = says(NOWHERE, &["completions", shell]).await;
        assert!(script.contains("release-key"), "{shell}: {script}");
    }
    let output = outbox_relay(NOWHERE, &["completions", "csh"]).await;
    assert_eq!(output.status.code(), Some(2));
}

#[tokio::test]
async fn the_manual_page_has_every_subcommand_and_each_has_one_of_its_own() {
    let page = says(NOWHERE, &["man"]).await;
    assert!(page.contains(".TH outbox-relay 1"), "{page}");
    let directory = Directory::new();
    let into = directory.write("place", "").with_file_name("man1");
    says(NOWHERE, &["man", into.to_str().unwrap()]).await;
    let all = fs::read_to_string(into.join("outbox-relay.1")).unwrap();
    assert!(all.contains("EXIT") || all.contains("Exit codes"), "{all}");
    for name in subcommands().await {
        let escaped = name.replace('-', "\\-");
        let own = fs::read_to_string(into.join(format!("outbox-relay-{name}.1")));
        if name == "help" {
            assert!(own.is_err());
            continue;
        }
        let entry = format!("outbox\\-relay\\-{escaped}(1)");
        assert!(page.contains(&entry), "{entry} is not in\n{page}");
        assert!(own.unwrap().contains(".SH SYNOPSIS"), "{name}");
    }
    let file = directory.write("taken", "");
    let output = outbox_relay(NOWHERE, &["man", file.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(1));
}
