//! Any value for any key: it can run, or there is a mistake that names line and key.

use super::*;

/// Each key that there is, once at least, and on a line of its own.
const FILE: &str = r#"
[database]
url = "postgresql://relay@db.internal/app"
ca_file = "/etc/ca.pem"
guard = "production"
altered_schema = "warn"
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
[history]
attempts = "7d"
successes = "2d"
delivered = "0s"
requests = "1d"
record = "failures"
[http]
listen = "127.0.0.1:9090"
sample_every = "30s"
max_due_age = "5m"
operators_file = "/run/operators"
readers_file = "/run/readers"
callbacks_url = "https://outbox.example.com"
public = true
writers_file = "/run/writers"
signers_file = "/run/signers"
max_body = "2MiB"
[alerts]
every = "10s"
repeat = "1h"
window = "10m"
failure_ratio = 0.25
failure_minimum = 5
dead_letters = 3
oldest_due = "5m"
paused = "2h"
no_route = "5m"
sagas = 3
off = ["failures"]
topic = "outbox.alert"
webhook.url = "https://hooks.internal/T0"
webhook.format = "slack"
webhook.timeout = "5s"
webhook.headers.X-C = "1"
webhook.header_files.X-D = "/run/d"
[tracing]
otlp_url = "http://collector:4318"
timeout = "5s"
service_name = "shop-outbox"
sample = 0.1
headers.X-E = "1"
[defaults]
trace = false
concurrency = 8
timeout = "5s"
connect_timeout = "1s"
retry.factor = 3
retry.max_throttled = 3
[[endpoints]]
name = "billing"
url = "http://127.0.0.1:9000/hook"
rate = "600/m"
burst = 20
max_in_flight = 9
statuses.404 = "dead"
statuses.5xx = "retry"
statuses.timeout = "pause"
breaker.enabled = true
breaker.ratio = 0.5
breaker.minimum = 20
breaker.window = "30s"
breaker.pause = "5s"
breaker.cap = "5m"
breaker.probes = 2
breaker.ramp = "10s"
gzip_above = "1KiB"
batch.messages = 10
batch.bytes = "1MiB"
proxy = "http://proxy:3128"
proxy_auth_file = "/run/proxy"
basic.user = "u"
basic.password_file = "/run/password"
[[endpoints]]
name = "mail-out"
url = "https://mail.internal/in/{topic}?v={key}"
concurrency = 0x10
timeout = "1h"
connect_timeout = "2s"
http_version = "2"
details = "all"
method = "PUT"
format = "cloudevents-binary"
source = "/shop"
guard.allow = ["10.0.0.0/8"]
headers.X-A = "1"
header_files.X-B = "/run/b"
idempotency.format = "bare"
idempotency.header = "X-Key"
idempotency.ttl = "1h"
oauth2.token_url = "https://auth.internal/token"
oauth2.client_id = "relay"
oauth2.client_secret_file = "/run/client"
oauth2.scope = "hooks"
oauth2.audience = "mail"
sign.secrets = ["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]
sign.secret_files = ["/run/secrets"]
ca_file = "/etc/ca.pem"
client_cert_file = "/run/tls.crt"
client_key_file = "/run/tls.key"
retry.delays = ["5s", "1m"]
retry.max_age = "12h"
[[endpoints]]
name = "audit"
url = "https://audit.internal/"
bearer_file = "/run/token"
[[webhooks]]
name = "code"
topic = "code.push"
type = "push"
scheme = "github"
secret_files = ["/run/github"]
signature_header = "X-Signature"
id_header = "X-Delivery"
headers = ["X-GitHub-Event"]
[[schedules]]
name = "nightly"
cron = "0 2 * * *"
time_zone = "Europe/Berlin"
topic = "report.nightly"
key = "shop-1"
type = "nightly"
payload = '{"all": true}'
headers.X-F = "1"
missed = "all"
max_missed = 5
[[routes]]
topic = "order.*"
to = ["billing"]
order = "key"
on_dead = "continue"
retry.jitter = "decorrelated"
retry.base = "1s"
retry.cap = "1m"
retry.max_attempts = 4
[[routes]]
topic = "**"
to = ["audit", "mail-out"]
"#;

/// The lines that have a value, each with its key, without what stands before its last dot.
fn places() -> Vec<(usize, &'static str)> {
    let keyed = |(at, line): (usize, &'static str)| Some((at, line.split_once(" = ")?.0));
    FILE.lines().enumerate().filter_map(keyed).collect()
}

fn with(at: usize, value: &str) -> String {
    let mut lines: Vec<String> = FILE.lines().map(String::from).collect();
    let (key, _) = lines[at].split_once(" = ").unwrap();
    lines[at] = format!("{key} = {value}");
    lines.join("\n")
}

/// A value in TOML, of any type, and near what is right.
fn value() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "1s",
        "5",
        "0s",
        "36500d",
        "99999999999d",
        "1MiB",
        "0",
        "1/s",
        "1e9/h",
        "none",
        "key",
        "raw",
        "http://h/",
        "https://h/{key}",
        "a",
        "A",
        "X-A",
        "*",
        "**.a",
        "/run/x",
        "10.0.0.0/8",
        "whsec_x",
        "success",
        "decorrelated",
        "batch",
        "",
        " ",
        "é\n",
    ]);
    let text = prop_oneof![words.prop_map(String::from), any::<String>()];
    // JSON's texts are TOML's, but for this one character.
    let text = text.prop_map(|text| serde_json::to_string(&text.replace('\u{7f}', "")).unwrap());
    let simple = prop_oneof![
        4 => text.clone(),
        2 => any::<i64>().prop_map(|number| number.to_string()),
        1 => (-5_i64..2000).prop_map(|number| number.to_string()),
        1 => any::<f32>().prop_map(|number| format!("{number:?}").to_lowercase()),
        1 => any::<bool>().prop_map(|flag| flag.to_string()),
        1 => Just("2026-01-02T03:04:05Z".to_owned()),
    ];
    let list = prop::collection::vec(simple.clone(), 0..4);
    prop_oneof![
        4 => simple.clone(),
        1 => list.prop_map(|values| format!("[{}]", values.join(", "))),
        1 => (text, simple).prop_map(|(key, value)| format!("{{ {key} = {value} }}")),
    ]
}

#[test]
fn the_file_has_every_key_and_is_right() {
    assert_eq!(read(FILE, &[]).map(|config| config.endpoints.len()), Ok(3));
    // Each unknown key is answered with all that are known in its place.
    for table in [
        "defaults", "relay", "history", "http", "alerts", "tracing", "database",
    ] {
        let header = format!("[{table}]");
        let at = FILE.lines().position(|line| line == header).expect(table);
        let mut lines: Vec<&str> = FILE.lines().collect();
        lines.insert(at + 1, "qqqqqqqq = 1");
        let problems = read(&lines.join("\n"), &[]).unwrap_err();
        let known = &problems.list[0].message;
        let known = known
            .strip_prefix("unknown key; known here: ")
            .expect(table);
        for key in known.split(", ") {
            let here = |line: &str| line.split([' ', '.']).next() == Some(key);
            assert!(key == "url_file" || FILE.lines().any(here), "{table}.{key}");
        }
    }
}

proptest! {
    #[test]
    fn any_value_for_any_key_can_run_or_is_named(place in prop::sample::select(places()), value in value()) {
        let (at, key) = place;
        let text = with(at, &value);
        let Err(problems) = read(&text, &[]) else { return Ok(()) };
        prop_assert!(!problems.list.is_empty());
        for problem in &problems.list {
            prop_assert!(problem.line.is_some() && !problem.key.is_empty(), "{} = {}: {}", key, value, problem);
        }
        let named = |problem: &Problem| problem.line == Some(at + 1) && problem.key.contains(key);
        // A value that is right by itself may make another one wrong, which is named then; of two that exclude each other, one.
        let alone = |problem: &Problem| problem.message.starts_with("expected") || problem.message.contains("found");
        let named = problems.list.iter().any(named) || !problems.list.iter().any(alone);
        prop_assert!(named, "{} = {}: {}", key, value, problems);
    }
}
