//! What a file comes to. What is wrong with one is in `tests/mistakes.rs`.

mod mistakes;
mod policies;
mod routes;
mod sending;
mod values;

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    retry,
    store::{History, Retention},
};

const SMALLEST: &str = r#"
[[endpoints]]
name = "billing"
url = "http://127.0.0.1:9000/hook"

[[routes]]
topic = "order.*"
to = ["billing"]
"#;

const EVERYTHING: &str = r#"
[database]
url = "postgresql://relay:s3cret@db.internal/app?sslmode=verify-full"
ca_file = "/etc/ca.pem"
guard = "production"

[relay]
name = "relay-7"
lease = "20s"
poll = "1s"
doorbell = false
batch = 100
concurrency = 50
memory = "10MiB"
grace = "0s"
max_lost = 2

[http]
listen = "[::1]:9090"
public = false
max_due_age = "10m"

[history]
attempts = "7d"
successes = "2d"
delivered = "0s"
record = "failures"

[defaults]
concurrency = 8
timeout = "5s"
connect_timeout = "1s"
retry = { base = "2s", factor = 3, max_attempts = 7 }

[[endpoints]]
name = "billing"
url = "http://127.0.0.1:9000/hook"

[[endpoints]]
name = "mail-out"
url = "https://mail.internal/in?v=1"
concurrency = 0x10
timeout = "1h"
connect_timeout = "2s"
http_version = "2"

  [endpoints.retry]
  base = "500ms"
  cap = "1h30m"
  max_age = "12h"

[[routes]]
topic = "order.*"
to = ["billing"]

[[routes]]
topic = "**"
to = ["mail-out"]
"#;

fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = variables.iter();
    pairs.map(|(a, b)| ((*a).into(), (*b).into())).collect()
}

fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, Problems> {
    parse("relay.toml", text, &environment(variables), "host-1")
}

const DATABASE: (&str, &str) = ("DATABASE_URL", "postgres://relay:s3cret@db/app");

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn two_keys_and_two_keys_are_enough() {
    let config = read(SMALLEST, &[DATABASE]).unwrap();
    assert_eq!(
        config.database,
        store::Config {
            url: DATABASE.1.into(),
            url_file: None,
            ca_file: None,
            lenient: false,
            guard: None,
        }
    );
    assert_eq!(
        config.relay,
        relay::Config {
            name: "host-1".into(),
            lease: seconds(15),
            poll: Duration::from_millis(200),
            doorbell: true,
            idle: seconds(5),
            batch: 200,
            concurrency: 1024,
            memory: 64 << 20,
            grace: seconds(25),
            max_due_age: None,
            max_lost: 5,
        }
    );
    assert_eq!(
        config.maintenance,
        maintenance::Config {
            keep: Retention {
                attempts: seconds(30 * 86_400),
                successes: seconds(30 * 86_400),
                delivered: seconds(86_400),
            },
            requests: seconds(7 * 86_400),
            sagas: seconds(30 * 86_400),
            record: History::All,
        }
    );
    assert_eq!(
        config.endpoints,
        [delivery::Endpoint::new(
            "billing",
            "http://127.0.0.1:9000/hook".parse().unwrap()
        )]
    );
    assert_eq!(
        config.routes.of("order.paid").unwrap().to,
        ["billing".into()]
    );
}

#[test]
fn everything_can_be_set_and_is_inherited_key_by_key() {
    let config = read(EVERYTHING, &[DATABASE]).unwrap();
    assert!(config.database.url.starts_with("postgresql://relay:"));
    assert_eq!(config.database.ca_file, Some("/etc/ca.pem".into()));
    assert_eq!(config.database.guard.as_deref(), Some("production"));
    assert_eq!(
        config.relay,
        relay::Config {
            name: "relay-7".into(),
            lease: seconds(20),
            poll: seconds(1),
            doorbell: false,
            idle: seconds(5),
            batch: 100,
            concurrency: 50,
            memory: 10 << 20,
            grace: Duration::ZERO,
            max_due_age: Some(seconds(600)),
            max_lost: 2,
        }
    );
    assert_eq!(config.admin.listen, "[::1]:9090".parse().ok());
    assert_eq!(config.maintenance.keep.attempts, seconds(7 * 86_400));
    assert_eq!(config.maintenance.keep.successes, seconds(2 * 86_400));
    assert_eq!(config.maintenance.keep.delivered, Duration::ZERO);
    assert_eq!(config.maintenance.record, History::Failures);
    let full = |base, cap| {
        let [base, cap] = [base, cap].map(Duration::from_millis);
        retry::Backoff::Full {
            base,
            factor: 3.0,
            cap,
        }
    };
    let inherited = retry::Policy {
        backoff: full(2000, 3_600_000),
        max_attempts: 7,
        ..retry::Policy::default()
    };
    let endpoint = |name: &str, url: &str| delivery::Endpoint::new(name, url.parse().unwrap());
    let billing = delivery::Endpoint {
        concurrency: 8,
        timeout: seconds(5),
        connect_timeout: seconds(1),
        retry: inherited.clone(),
        ..endpoint("billing", "http://127.0.0.1:9000/hook")
    };
    let mail = delivery::Endpoint {
        concurrency: 16,
        timeout: seconds(3600),
        connect_timeout: seconds(2),
        http_version: delivery::HttpVersion::Http2,
        retry: retry::Policy {
            backoff: full(500, 5_400_000),
            max_age: seconds(12 * 3600),
            ..inherited
        },
        ..endpoint("mail-out", "https://mail.internal/in?v=1")
    };
    assert_eq!(config.endpoints, [billing, mail]);
    assert_eq!(
        config.routes.of("order.paid").unwrap().to,
        ["billing".into()]
    );
    assert_eq!(config.routes.of("user").unwrap().to, ["mail-out".into()]);
}

#[test]
fn the_environment_overrides_every_kind_of_value() {
    let config = read(
        EVERYTHING,
        &[
            ("OUTBOX__DATABASE__URL", "host=db user=relay"),
            ("OUTBOX__RELAY__NAME", "other"),
            ("OUTBOX__RELAY__LEASE", "5s"),
            ("OUTBOX__RELAY__BATCH", "7"),
            ("OUTBOX__RELAY__MEMORY", "2097152"),
            ("OUTBOX__DEFAULTS__CONCURRENCY", "9"),
            ("OUTBOX__DEFAULTS__RETRY__FACTOR", "1.5"),
            ("OUTBOX__ENDPOINTS__MAIL_OUT__URL", "http://other/in"),
            ("OUTBOX__ENDPOINTS__MAIL_OUT__RETRY__BASE", "3s"),
            ("OUTBOX_LOG", "debug"),
            ("HOME", "/"),
        ],
    )
    .unwrap();
    assert_eq!(config.database.url, "host=db user=relay");
    assert_eq!(config.relay.name, "other");
    assert_eq!(config.relay.lease, seconds(5));
    assert_eq!(config.relay.batch, 7);
    assert_eq!(config.relay.memory, 2 << 20);
    let [billing, mail] = config.endpoints.as_slice() else {
        panic!("{:?}", config.endpoints)
    };
    assert_eq!((billing.concurrency, mail.concurrency), (9, 16));
    assert_eq!(mail.url.as_str(), "http://other/in");
    let full = |base, cap| retry::Backoff::Full {
        base: seconds(base),
        factor: 1.5,
        cap: seconds(cap),
    };
    assert_eq!(billing.retry.backoff, full(2, 3600));
    assert_eq!(mail.retry.backoff, full(3, 5400));
}

/// `[database]` | environment => the URL that is taken, or what must be said. `FILE` is a file that holds a URL.
const DATABASES: &str = r#"
 | DATABASE_URL=postgres://variable => postgres://variable
url = "postgres://toml" | DATABASE_URL=postgres://variable => postgres://toml
url_file = "FILE" | DATABASE_URL=postgres://variable => postgres://file
url = "postgres://toml" | OUTBOX__DATABASE__URL=postgres://over => postgres://over
url_file = "FILE" | OUTBOX__DATABASE__URL=postgres://over => postgres://over
url = "postgres://toml" | OUTBOX__DATABASE__URL_FILE=FILE => postgres://file
url = "postgres://toml" ; url_file = "FILE" | OUTBOX__DATABASE__URL=postgres://over => postgres://over
url = "postgres://toml" ; url_file = "FILE" | => line 11, database.url_file: stands beside url
url = "postgres://toml" ; url_file = "FILE" | OUTBOX__DATABASE__URL=host=over OUTBOX__DATABASE__URL_FILE=FILE => environment OUTBOX__DATABASE__URL_FILE: stands beside url
 | => line 9, database.url: no database: set url or url_file in [database], or DATABASE_URL in the environment
 | DATABASE_URL= => line 9, database.url: no database
 | DATABASE_URL=s3cret => environment DATABASE_URL: must be a URL such as
 | DATABASE_URL=mysql://s3cret => environment DATABASE_URL: must be a URL such as
url = 5 | DATABASE_URL=postgres://variable => line 10, database.url: expected a URL such as "postgres://user@host/database", found a value of type integer
url = "s3cret" | DATABASE_URL=postgres://variable => line 10, database.url: must be a URL
url_file = "/no/such/file" | DATABASE_URL=postgres://variable => line 10, database.url_file: can't be read
url_file = "/dev/null" | DATABASE_URL=postgres://variable => line 10, database.url_file: must be a URL
"#;

#[test]
fn the_database_url_has_an_order_of_places() {
    let path = std::env::temp_dir().join(format!("outbox-relay-{}", std::process::id()));
    fs::write(&path, "postgres://file\n").unwrap();
    for row in DATABASES.lines().skip(1) {
        let row = row.replace("FILE\"", &format!("{}\"", path.display()));
        let row = row.replace("=FILE", &format!("={}", path.display()));
        let (before, want) = row.split_once(" => ").unwrap();
        let (keys, variables) = before.split_once(" |").unwrap();
        let text = format!("{SMALLEST}[database]\n{}\n", keys.replace(" ; ", "\n"));
        let variables = variables
            .split_whitespace()
            .filter_map(|v| v.split_once('='));
        match read(&text, &variables.collect::<Vec<_>>()) {
            Ok(config) => assert_eq!(config.database.url, want, "{row}"),
            Err(problems) => {
                assert!(
                    problems.list[0].to_string().starts_with(want),
                    "{row}: {problems}"
                );
                assert_eq!(problems.list.len(), 1, "{row}: {problems}");
                assert!(!problems.to_string().contains("s3cret"), "{problems}");
            }
        }
    }
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_shorter_timeout_takes_the_inherited_connect_timeout_with_it() {
    let text = SMALLEST.replace("[[routes]]", "timeout = \"1s\"\n[[routes]]");
    let config = read(&text, &[DATABASE]).unwrap();
    assert_eq!(config.endpoints[0].connect_timeout, seconds(1));
}

#[test]
fn secrets_are_not_shown() {
    let config = read(EVERYTHING, &[]).unwrap();
    assert!(!format!("{config:?}").contains("s3cret"));
    for text in [
        "database = \"postgres://u:s3cret@h\"",
        "relay.batch = \"postgres://u:s3cret@h\"",
        "relay.lease = \"host=h password=s3cret\"",
        "[database]\nurl = [\"postgres://u:s3cret@h\"]",
        "[database]\nurl = { value = \"postgres://u:s3cret@h\" }",
        "[database]\nurl = \"mysql://u:s3cret@h\"",
        "[database]\nulr = \"postgres://u:s3cret@h\"",
        "\"postgres://u:s3cret@h\" = 1",
        "[[endpoints]]\nname = \"postgres://u:s3cret@h\"",
        "[[endpoints]]\nname = \"postgres://u:s3cret@h\"\n[[routes]]\nto = [\"x\"]",
        "[[endpoints]]\nname = \"x\"\n[[routes]]\nto = [\"postgres://u:s3cret@h\"]",
    ] {
        let problems = read(text, &[]).unwrap_err();
        assert!(!problems.to_string().contains("s3cret"), "{problems}");
        assert!(!format!("{problems:?}").contains("s3cret"), "{problems:?}");
    }
}

#[test]
fn a_file_is_loaded_with_the_host_as_name() {
    let path = std::env::temp_dir().join(format!("outbox-relay-{}.toml", std::process::id()));
    fs::write(&path, EVERYTHING.replace("name = \"relay-7\"", "")).unwrap();
    let config = load(&path);
    fs::remove_file(&path).unwrap();
    assert!(!config.unwrap().relay.name.is_empty());
}

#[test]
fn the_digest_tells_what_differs_but_secrets_and_names() {
    let digest = |text: &str, variables: &[(&str, &str)]| read(text, variables).unwrap().digest;
    let first = digest(EVERYTHING, &[]);
    assert_eq!(first.len(), 16);
    let same = [
        ("OUTBOX__DATABASE__URL", "postgres://other"),
        ("OUTBOX__RELAY__NAME", "other"),
        ("OUTBOX__RELAY__LEASE", "20000ms"),
        ("OUTBOX__DEFAULTS__RETRY__CAP", "60m"),
        ("OUTBOX__ENDPOINTS__BILLING__CONCURRENCY", "8"),
    ];
    for variable in same {
        assert_eq!(digest(EVERYTHING, &[variable]), first, "{variable:?}");
    }
    let other = [
        ("OUTBOX__RELAY__LEASE", "21s"),
        ("OUTBOX__DATABASE__GUARD", "staging"),
        ("OUTBOX__DEFAULTS__RETRY__FACTOR", "3.5"),
        ("OUTBOX__ENDPOINTS__BILLING__URL", "http://other"),
    ];
    for variable in other {
        assert_ne!(digest(EVERYTHING, &[variable]), first, "{variable:?}");
    }
    let topic = EVERYTHING.replace("order.*", "order.**");
    assert_ne!(digest(&topic, &[]), first);
    let endpoint = EVERYTHING.replace("to = [\"billing\"]", "to = [\"mail-out\"]");
    assert_ne!(digest(&endpoint, &[]), first);
}

/// Some bytes of a valid file taken out, put in or repeated.
fn mutated() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[\\[\\]{}=\"'#.,\n 0-9a-z-]{0,4}",
        any::<char>().prop_map(String::from),
    ];
    let change = (any::<prop::sample::Index>(), 0_usize..12, piece);
    prop::collection::vec(change, 1..4).prop_map(|changes| {
        let mut letters: Vec<char> = EVERYTHING.chars().collect();
        for (start, length, piece) in changes {
            let start = start.index(letters.len());
            let end = (start + length).min(letters.len());
            letters.splice(start..end, piece.chars());
        }
        letters.into_iter().collect()
    })
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), name in "[A-Z_]{0,12}", value in any::<String>()) {
        let name = format!("OUTBOX__{name}");
        if let Err(problems) = read(&text, &[(&name, &value)]) {
            prop_assert!(!problems.list.is_empty());
        }
    }

    #[test]
    fn any_change_of_a_file_is_read_or_refused(text in mutated()) {
        if let Err(problems) = read(&text, &[]) {
            prop_assert!(!problems.list.is_empty());
            let lines = text.lines().count().max(1);
            for problem in &problems.list {
                prop_assert!(problem.line.is_none_or(|line| (1..=lines + 1).contains(&line)), "{}", problem);
            }
            prop_assert!(!problems.to_string().contains("s3cret"), "{}", problems);
        }
    }
}
