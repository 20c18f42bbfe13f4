//! What somebody at a terminal has of the command line, and what a program has of it that reads through a pipe.
use std::{
    fs,
    process::{Output, Stdio},
};

use outbox_relay::lab::receiver::Reply;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::support::{
    binary::{Directory, outbox_relay},
    database, eventually, pooled,
    proxy::Proxy,
    rows::{SOON, count, insert},
    scene::Scene,
};

const BINARY: &str = env!("CARGO_BIN_EXE_outbox-relay");

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

// === a terminal and a pipe ===

/// Runs a command at a terminal of 80 columns; once this was shown so often, Ctrl-C is pressed. All that was shown.
async fn at_terminal(
    database: &str,
    variables: &[(&str, &str)],
    until: (&str, u32),
    arguments: &[&str],
) -> String {
    let play = "import fcntl, os, pty, signal, struct, sys, termios
signal.alarm(60)
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
    os.execv(sys.argv[3], sys.argv[3:])
shown, pressed = b'', False
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:
        break
    if not piece:
        break
    shown += piece
    if not pressed and shown.count(sys.argv[1].encode()) >= int(sys.argv[2]):
        pressed = True
        os.write(terminal, b'\\x03')
sys.stdout.buffer.write(shown)
sys.stdout.flush()
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)";
    let output = Command::new("python3")
        .args(["-c", play, until.0, &until.1.to_string(), BINARY])
        .args(arguments)
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .env("DATABASE_URL", pooled(database))
        .kill_on_drop(true)
        .output();
    let output = output.await.unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    shown
}

/// A command that goes on, and what it answers through a pipe.
struct Piped {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Piped {
    fn start(database: &str, arguments: &[&str]) -> Piped {
        let mut child = Command::new(BINARY)
            .args(arguments)
            .env("DATABASE_URL", pooled(database))
            .env("TERM", "xterm")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Piped { child, lines }
    }

    async fn line(&mut self) -> String {
        let line = timeout(SOON, self.lines.next_line()).await;
        let line = line.expect("a line comes").unwrap().expect("it goes on");
        assert!(!line.contains('\x1b'), "{line:?}");
        line
    }

    async fn line_with(&mut self, part: &str) -> String {
        loop {
            let line = self.line().await;
            if line.contains(part) {
                return line;
            }
        }
    }

    async fn json(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// Ends it as `kill` does.
    async fn end(mut self) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        let status = timeout(SOON, self.child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

/// One message is delivered at the second attempt, one is dead.
async fn scene() -> Scene {
    let scene = Scene::new(|request| match (&request.body[..], request.number) {
        (b"\"dead\"", _) => {
            Reply::status(422).body("no such warehouse: Utrecht, nor is there one near it")
        }
        (_, 1) => Reply::status(503),
        _ => Reply::status(200),
    })
    .await;
    scene.deliver("payload, key", "'1', 'k'").await;
    scene.deliver("payload", "'\"dead\"'").await;
    scene
}

const CLEAR: &str = "\x1b[H\x1b[2J";

#[tokio::test]
async fn a_watched_status_is_drawn_anew_and_ends_by_ctrl_c() {
    let database = database().await;
    let watch = ["status", "--watch", "0.1"];
    let shown = at_terminal(&database.url, &[], (CLEAR, 3), &watch).await;
    let rounds: Vec<&str> = shown.split(CLEAR).collect();
    assert!(rounds.len() >= 4, "{shown:?}");
    for round in &rounds[1..3] {
        assert!(round.lines().next().unwrap().ends_with(" UTC"), "{round:?}");
        assert!(
            round.contains("schema version") && round.contains("nothing is pending"),
            "{round:?}"
        );
    }
    for wrong in ["0", "-1", "x", "1e9"] {
        let arguments = [&format!("--watch={wrong}")[..], "--json"];
        let output = outbox_relay(NOWHERE, &[&["status"], &arguments[..]].concat()).await;
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    let output = outbox_relay(NOWHERE, &["status", "--watch"]).await;
    assert_eq!(
        output.status.code(),
        Some(3),
        "what never answered is no outage"
    );
}

#[tokio::test]
async fn a_watched_status_goes_on_after_an_outage() {
    let database = database().await;
    let url: reqwest::Url = database.url.parse().unwrap();
    let proxy = Proxy::start(url.port().unwrap()).await;
    let by_proxy = proxy.url(&database.url);
    let mut text = Piped::start(&by_proxy, &["status", "--watch", "0.1"]);
    let mut json = Piped::start(&by_proxy, &["status", "--watch", "0.1", "--json"]);
    assert!(text.line().await.ends_with(" UTC"));
    text.line_with("schema version").await;
    assert_eq!(
        text.line_with(" UTC").await.len(),
        "11-30 03:05:58 UTC".len()
    );
    assert!(json.json().await["schema_version"].is_number());
    proxy.close(true);
    text.line_with("database").await;
    while json.json().await["error"].is_null() {}
    proxy.close(false);
    text.line_with("schema version").await;
    while json.json().await["schema_version"].is_null() {}
    text.end().await;
    json.end().await;
}

#[tokio::test]
async fn the_history_is_followed_also_where_it_is_written_late() {
    let scene = scene().await;
    let url = &scene.database.url;
    let mut all = Piped::start(url, &["tail", "--json", "-n", "2"]);
    let mut failures = Piped::start(url, &["tail", "--failures", "--key", "k", "-n", "1"]);
    let (second, third) = (all.json().await, all.json().await);
    assert_eq!(
        (&second["settlement"], &second["attempt"]),
        (&"delivered".into(), &2.into())
    );
    assert_eq!(third["settlement"], "dead");
    assert!(failures.line().await.starts_with("AT (UTC)"));
    assert!(failures.line().await.contains("→ retry"));
    // An attempt that began long before those was settled just now.
    let late = "create table public.late as select * from outbox.attempts where attempt = 2;
        update public.late set attempt = 7, settlement = 'retry', started_at = now() - interval '50 s';
        insert into outbox.attempts select * from public.late";
    scene.client.batch_execute(late).await.unwrap();
    assert_eq!(all.json().await["attempt"], 7);
    assert!(failures.line().await.contains("  7 success"));
    // Nothing is shown twice, and what is new comes next.
    let id = scene.deliver("payload, key", "'2', 'k'").await;
    assert_eq!(all.json().await["id"], id.to_string());
    // What began before the window is not looked for.
    let early = "update public.late set attempt = 8, started_at = now() - interval '3 min';
        insert into outbox.attempts select * from public.late";
    scene.client.batch_execute(early).await.unwrap();
    let id = scene.deliver("payload, key", "'3', 'k'").await;
    assert_eq!(all.json().await["id"], id.to_string());
    all.end().await;
    failures.end().await;
    let shown = at_terminal(url, &[], ("order", 0), &["tail", "-n", "0"]).await;
    assert!(
        shown.starts_with("AT (UTC)") || shown.starts_with("^C"),
        "{shown:?}"
    );
}

#[tokio::test]
async fn nothing_is_wider_than_a_terminal_and_colours_are_for_terminals() {
    let scene = scene().await;
    let _relay = scene.start();
    let url = &scene.database.url;
    eventually("a relay is there", SOON, async || {
        count(&scene.client, "relays").await == 1
    })
    .await;
    let why =
        "the warehouse moves house, and nobody there knows which order is for whom until it has";
    says(url, &["pause", "shop", "--why", why]).await;
    insert(
        &scene.client,
        "a.topic.whose.name.is.much.longer.than.any.column.for.it",
        2,
    )
    .await;
    const RED: &str = "\x1b[31m";
    const GREEN: &str = "\x1b[32m";
    const YELLOW: &str = "\x1b[33m";
    let never = ("never", 1);
    type Words = &'static [&'static str];
    let all: [(Words, (&str, u32), Words); 5] = [
        (&["status"], never, &[YELLOW]),
        (&["list", "dead"], never, &[RED]),
        (&["list"], never, &[]),
        (&["history"], never, &[RED, GREEN, YELLOW]),
        (&["tail"], ("rejected", 1), &[RED, GREEN, YELLOW]),
    ];
    for (arguments, until, colours) in all {
        let shown = at_terminal(url, &[], until, arguments).await;
        for colour in colours {
            assert!(shown.contains(colour), "{colour:?} is not in {shown:?}");
        }
        let plain = [RED, GREEN, YELLOW, "\x1b[0m"]
            .iter()
            .fold(shown, |text, code| text.replace(code, ""));
        assert!(!plain.contains('\x1b'), "{plain:?}");
        for line in plain.lines() {
            // What the terminal itself says of the key that ends it.
            let line = line.strip_prefix("^C").unwrap_or(line);
            assert!(
                line.chars().count() <= 80,
                "{arguments:?}: {line:?}\n{plain}"
            );
        }
        for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let shown = at_terminal(url, &[variable], until, arguments).await;
            assert!(!shown.contains('\x1b'), "{variable:?}: {shown:?}");
        }
        if arguments != ["tail"] {
            assert!(!says(url, arguments).await.contains('\x1b'));
        }
    }
}

/// Whoever looks on sees how fast it goes, and how long it will take; a pipe gets the end only.
#[tokio::test]
async fn a_replay_says_at_a_terminal_how_fast_it_goes_and_what_is_left() {
    let scene = Scene::new(|_| Reply::status(422)).await;
    insert(&scene.client, "t", 30).await;
    let relay = scene.start();
    eventually("all are dead", SOON, async || {
        count(&scene.client, "dead_letters").await == 30
    })
    .await;
    relay.stop().await;
    let url = &scene.database.url;
    let replay = ["replay", "--topic", "t", "--rate", "10"];
    let shown = at_terminal(url, &[], ("never", 1), &replay).await;
    let said: Vec<(u32, u32, f64)> = shown
        .split("\r\x1b[K")
        .filter_map(|line| {
            let (gone, line) = line.strip_prefix("job 1: ")?.split_once(" of 30, ")?;
            let (rate, left) = line.split_once(" in a second, ")?;
            let left = left.strip_suffix(" left").expect("it says what is left");
            assert!(left.ends_with('s'), "{line}");
            let left = left.trim_end_matches("ms").trim_end_matches('s');
            Some((
                gone.parse().unwrap(),
                rate.parse().unwrap(),
                left.parse().unwrap(),
            ))
        })
        .collect();
    assert!(said.len() > 2, "{shown:?}");
    assert!(said.is_sorted_by_key(|(gone, ..)| *gone), "{said:?}");
    // Its first second may have more: a bucket is full at first.
    assert!(said.iter().all(|(_, rate, _)| *rate <= 60), "{said:?}");
    assert!(shown.ends_with("job 1: done, 30 sent again\n"), "{shown:?}");
    let relay = scene.start();
    eventually("all are dead again", SOON, async || {
        count(&scene.client, "dead_letters").await == 30
    })
    .await;
    relay.stop().await;
    let piped = says(url, &["replay", "--topic", "t"]).await;
    assert_eq!(piped, "job 2: 30 messages\njob 2: done, 30 sent again\n");
}
