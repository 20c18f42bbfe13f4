//! What is wrong, and how it is said.

use super::*;

/// What is wrong, a line a problem, without the file's name.
fn wrong(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let problems = read(text, variables).unwrap_err();
    assert_eq!(problems.to_string().lines().count(), problems.list.len());
    problems.list.iter().map(Problem::to_string).collect()
}

/// The one thing that is wrong with the smallest form when `addition` stands after it.
fn wrong_addition(addition: &str) -> String {
    let found = wrong(&format!("{SMALLEST}{addition}"), &[DATABASE]);
    assert_eq!(found.len(), 1, "{addition}: {found:?}");
    found[0].clone()
}

#[test]
fn all_that_is_wrong_is_said_at_once_in_the_order_of_the_file() {
    let text = r#"
[relay]
lease = "15"
pol = "1s"
batch = 2000
memory = 4

[histroy]
[defaults]
name = "x"
retry.cap = "0.5s"

[[endpoints]]
name = "Billing"
url = "ftp://host/in"
timeout = 10

[[endpoints]]
url = "http://user:pw@host/in"
retry = { factor = 0.5, max_attempts = "3" }

[[routes]]
topic = "order..*"
to = ["Billing"]

[[routes]]
to = ["a",
  5]
"#;
    let want = [
        r#"line 3, relay.lease: 15 has no unit: add one of ms, s, m, h, d, as in "15s""#,
        "line 4, relay.pol: unknown key; did you mean poll?",
        "line 5, relay.batch: must be from 1 to 1000, found 2000",
        "line 6, relay.memory: must be at least 1MiB, found 4",
        "line 8, histroy: unknown key; did you mean history?",
        "line 10, defaults.name: unknown key; known here: basic, batch, bearer_file, breaker, burst, ca_file, client_cert_file, client_key_file, concurrency, connect_timeout, details, format, guard, gzip_above, header_files, headers, http_version, idempotency, max_in_flight, method, oauth2, proxy, proxy_auth_file, rate, retry, sign, source, statuses, timeout, trace",
        r#"line 11, defaults.retry.cap: expected a duration such as "200ms", "15s" or "1h30m", found "0.5s""#,
        r#"line 14, endpoints[0].name: must be 1 to 63 of a-z, 0-9, _ and -, found "Billing""#,
        r#"line 15, endpoints[0].url: must be http or https, found "ftp""#,
        r#"line 16, endpoints[0].timeout: 10 has no unit: add one of ms, s, m, h, d, as in "10s""#,
        r#"line 18, endpoints[1].name: is missing: expected a name such as "billing""#,
        "line 19, endpoints[1].url: must not hold credentials: those in a URL end up in logs",
        "line 20, endpoints[1].retry.factor: must be from 1 to 100, found 0.5",
        r#"line 20, endpoints[1].retry.max_attempts: expected a whole number such as 20, found the text "3""#,
        r#"line 23, routes[0].topic: topic pattern "order..*" has an empty word between its dots"#,
        r#"line 26, routes[1].topic: is missing: expected a pattern such as "order.*""#,
        r#"line 28, routes[1].to: expected a list of endpoints such as ["billing"], found the number 5"#,
        "database.url: no database: set url or url_file in [database], or DATABASE_URL in the environment",
        "environment OUTBOX__RELAY__LAESE: no such setting, or no such endpoint in this file; did you mean OUTBOX__RELAY__LEASE?",
    ];
    let found = wrong(text, &[("OUTBOX__RELAY__LAESE", "5s")]);
    assert_eq!(found, want, "{found:#?}");
    let shown = read(text, &[]).unwrap_err().to_string();
    assert!(shown.starts_with("relay.toml: line 3, relay.lease: 15 has no unit"));
}

/// Lines before the smallest form (` ; ` stands for a line break), and what must be said of them.
const MISTAKES: &str = r#"
relay.batch = 1.5 => line 1, relay.batch: expected a whole number such as 200, found the number 1.5
http.listen = "9090" => line 1, http.listen: expected an address and a port such as "127.0.0.1:9090" or "[::]:9090", found "9090"
http.listen = "localhost:9090" => line 1, http.listen: expected an address and a port such as "127.0.0.1:9090" or "[::]:9090", found "localhost:9090"
http.listen = "0.0.0.0:9090" ; http.readers_file = "/r" => line 1, http.listen: with operators_file, readers_file or writers_file the API would be at 0.0.0.0:9090 for other hosts, in plain HTTP, tokens and payloads too: listen at a loopback address, or put something that speaks TLS before it and say public = true
http.listen = "[::ffff:10.0.0.1]:9090" ; http.operators_file = "/o" ; http.public = false => the API would be at [::ffff:10.0.0.1]:9090 for other hosts
http.listen = "192.0.2.1:9090" ; http.writers_file = "/w" => the API would be at 192.0.2.1:9090 for other hosts
http.public = 1 => line 1, http.public: expected true or false, found the number 1
history.record = "some" => line 1, history.record: expected "all", "failures" or "none", found "some"
http.sample_every = "0s" => line 1, http.sample_every: must be from 1s to 1h, found "0s"
http.max_due_age = "0s" => line 1, http.max_due_age: must be from 1s to 365d, found "0s"
http.max_body = "30MiB" => line 1, http.max_body: must be from 1KiB to 24MiB, found "30MiB"
history.requests = "1m" => line 1, history.requests: must be at least 1h, found "1m"
[[webhooks]] ; topic = "order.x" ; secret_files = ["/x"] => line 1, webhooks[0].name: is missing: expected a name such as "github"
[[webhooks]] ; name = "a" ; secret_files = ["/x"] => line 1, webhooks[0].topic: is missing: expected a topic such as "github.push"
[[webhooks]] ; name = "a" ; topic = "x" ; secret_files = ["/x"] => line 3, webhooks[0].topic: no route takes "x": its messages would stay pending
[[webhooks]] ; name = "a" ; topic = "order.x" => webhooks[0].secret_files: is missing: without a secret anybody could send
[[webhooks]] ; name = "a" ; topic = "order.x" ; secret_files = [] => webhooks[0].secret_files: is missing: without a secret anybody could send
[[webhooks]] ; name = "a" ; topic = "order.x" ; secret_files = ["/x"] ; id_header = "X-Id" => line 5, webhooks[0].id_header: means nothing here
[[webhooks]] ; name = "a" ; topic = "order.x" ; secret_files = ["/x"] ; scheme = "stripe" ; signature_header = "X" => line 6, webhooks[0].signature_header: means something with scheme = "github" only
[[webhooks]] ; name = "a" ; topic = "order.x" ; secret_files = ["/x"] ; headers = ["Host"] => line 5, webhooks[0].headers[0]: "Host" is a header that HTTP or the relay sets
[[webhooks]] ; name = "a" ; topic = "order.x" ; secret_files = ["/x"] ; scheme = "paddle" => line 5, webhooks[0].scheme: expected "standard-webhooks" or "github" or "stripe", found "paddle"
[[schedules]] ; name = "a" ; topic = "order.x" => line 1, schedules[0].cron: is missing: expected a cron expression such as "0 2 * * *"
[[schedules]] ; name = "a" ; topic = "order.x" ; cron = "61 * * * *" => line 4, schedules[0].cron: "61 * * * *" is no cron expression: 
[[schedules]] ; name = "a" ; topic = "order.x" ; cron = "0 0 30 2 *" => line 4, schedules[0].cron: "0 0 30 2 *" is no cron expression: it never fires
[[schedules]] ; name = "a" ; topic = "order.x" ; cron = "@daily" ; time_zone = "Europe/Bonn" => line 5, schedules[0].time_zone: there is no time zone "Europe/Bonn"
[[schedules]] ; name = "a" ; topic = "x" ; cron = "@daily" => line 3, schedules[0].topic: no route takes "x": its messages would stay pending
[[schedules]] ; name = "a" ; topic = "order.x" ; cron = "@daily" ; payload = "{" => line 5, schedules[0].payload: is no JSON: 
[[schedules]] ; name = "a" ; topic = "order.x" ; cron = "@daily" ; headers.Schedule-Time = "x" => line 5, schedules[0].headers.Schedule-Time: is a header that the schedule sets
[[schedules]] ; name = "a" ; topic = "order.x" ; cron = "@daily" ; max_missed = 5 => line 5, schedules[0].max_missed: means something with missed = "all" only
relay.batch = "200" => expected a whole number such as 200, found the text "200"
relay.batch = -1 => must be from 1 to 1000, found -1
relay.batch = 99999999999999999999 => must be from 1 to 1000, found 99999999999999999999
relay.lease = true => expected a duration such as "15s", found the boolean true
relay.lease = 1.5 => 1.5 has no unit
relay.lease = "11m" => must be from 1s to 10m, found "11m"
relay.lease = { a = 1 } => expected a duration such as "15s", found a table
relay.lease = 12:30:00 => found a date or time
relay.memory = "64mb" => expected a size such as "64MiB", "500kB" or a number of bytes, found "64mb"
relay.memory = [] => expected a size such as "64MiB", found a list
relay.name = "" => must not be empty
relay.name = "a\nb" => have no control characters
relay.pols = "1s" => line 1, relay.pols: unknown key; did you mean poll?
history.attempts = "36h" => must be whole days
history.successes = "36h" => must be whole days
history.attempts = "7d" ; history.successes = "8d" => must not be longer than attempts
history.attempts = "1h" => must be at least 1d, found "1h"
defaults.connect_timeout = "3s" ; defaults.timeout = "2s" => line 1, defaults.connect_timeout: must not be longer than timeout, which is 2s
defaults.connect_timeout = "11s" => must not be longer than timeout, which is 10s
defaults.connect_timeout = "2h" ; defaults.timeout = "x" => line 2, defaults.timeout: expected a duration
defaults.retry.base = "2h" => defaults.retry.base: the first delay (base = 2h) is longer than any may be (cap = 1h)
defaults.retry.base = "2s" ; defaults.retry.cap = "1s" => line 2, defaults.retry.cap: the first delay (base = 2s)
defaults.http_version = "3" => line 1, defaults.http_version: "3" is neither "1.1" nor "2"
defaults.http_version = 2 => expected "1.1" or "2", found the number 2
defaults.retry = 5 => line 1, defaults.retry: expected a table, found the number 5
defaults.retry.factor = nan => must be from 1 to 100, found nan
defaults.retry.factor = inf => must be from 1 to 100, found inf
defaults.retry.factor = "2" => expected a number such as 2.0, found the text "2"
database.ca_file = 5 => expected a path such as "/etc/ca.pem", found the number 5
 ; unknown.x = 1 => line 2, unknown: unknown key; known here: alerts, database, defaults, endpoints, history, http, relay, retries, routes, sagas, schedules, tracing, webhooks
alerts.off = ["pause"] => line 1, alerts.off[0]: expected one of failures, dead_letters, oldest_due, paused, no_route, sagas, found "pause"
alerts.failure_ratio = 0 => line 1, alerts.failure_ratio: must be from 0.01 to 1, found 0
alerts.topic = "outbox.alert" => line 1, alerts.topic: no route takes "outbox.alert": its messages would stay pending
alerts.every = "30s" ; history.record = "none" => alerts.off: must hold "failures" unless history.record is "all"
alerts.webhook.format = "slack" => alerts.webhook.url: is missing: url or url_file says where notices go
alerts.webhook.url = "ftp://s3cret/x" => line 1, alerts.webhook.url: must be http or https, found "ftp"; its value is not shown here
alerts.webhook.url_file = "/nowhere/x" => line 1, alerts.webhook.url_file: can't be read: No such file or directory
alerts.webhook.url = "http://h/x" ; alerts.webhook.url_file = "/x" => line 2, alerts.webhook.url_file: stands beside url: only one of the two can be right
alerts.webhook.url = "http://h/x" ; alerts.webhook.retry = 1 => line 2, alerts.webhook.retry: unknown key
tracing.sample = 0.5 => tracing.otlp_url: is missing: it says where spans go
tracing.otlp_url = "grpc://h:4317" => line 1, tracing.otlp_url: must be http or https, found "grpc"
tracing.otlp_url = "http://h:4318" ; tracing.sample = 2 => line 2, tracing.sample: must be from 0 to 1, found 2
defaults.trace = "yes" => line 1, defaults.trace: expected true or false, found the text "yes"
[[endpoint]] ; [[endpoint]] => line 1, endpoint: unknown key; did you mean endpoints?
[[routes]] ; topic = "a" ; to = [] => line 3, routes[0].to: must name an endpoint
[[routes]] ; topic = "a" ; to = "billing" => expected a list of endpoints such as ["billing"], found the text "billing"
[[routes]] ; topic = "a" ; to = ["billing", "x"] => there is no endpoint "x", only "billing"
[[routes]] ; topic = "a" ; to = ["billing", "billing"] => names endpoint "billing" twice
[[routes]] ; topic = "a" ; to = ["biling"] => there is no endpoint "biling", only "billing"
[[routes]] ; topic = "a" ; to = ["billing"] ; key = 1 => line 4, routes[0].key: unknown key; known here: on_dead, order, retry, to, topic
[[routes]] ; topic = "a" ; to = ["billing"] ; order = "seq" => line 4, routes[0].order: expected "none" or "key", found "seq"
[[routes]] ; topic = "a" ; to = ["billing"] ; order = "key" ; on_dead = "stop" => expected "hold" or "continue", found "stop"
[[routes]] ; topic = "a" ; to = ["billing"] ; on_dead = "hold" => means something only with order = "key"
[[sagas]] ; name = "s" => line 1, sagas[0].steps: must be 1 to 50 [[sagas.steps]], each with name, to and do
[[sagas]] ; name = "a b" ; [[sagas.steps]] ; name = "a" ; to = "billing" ; do = "/a" => line 2, sagas[0].name: must be 1 to 64 letters, digits
[[sagas]] ; name = "s" ; [[sagas.steps]] ; to = "billing" ; do = "/a" => sagas[0].steps[0].name: is missing
[[sagas]] ; name = "s" ; [[sagas.steps]] ; name = "a" ; to = "bank" ; do = "/a" => line 5, sagas[0].steps[0].to: there is no endpoint "bank", only "billing"
[[sagas]] ; name = "s" ; [[sagas.steps]] ; name = "a" ; to = "billing" ; do = "a/../b" => sagas[0].steps[0].do: must be a path that begins with /
[[sagas]] ; name = "s" ; [[sagas.steps]] ; name = "a" ; to = "billing" ; do = "/a" ; retry = "x" => line 7, sagas[0].steps[0].retry: there are no [[retries]] with the name "x"
[[sagas]] ; name = "s" ; [[sagas.steps]] ; name = "a" ; to = "billing" ; do = "/a" ; on_exhausted = "stop" => expected "park" or "compensate", found "stop"
[[sagas]] ; name = "s" ; [[sagas.steps]] ; name = "a" ; to = "billing" ; do = "/a" ; timeout = "400d" => line 7, sagas[0].steps[0].timeout: must be from 1ms to 365d, found "400d"
[[sagas]] ; name = "s" ; [[sagas.steps]] ; name = "a" ; to = "billing" ; do = "/a" ; lapse = "1h" => line 7, sagas[0].steps[0].lapse: the step is not async
[[sagas]] ; name = "s" ; steps = [{ name = "a", to = "billing", do = "/a" }, { name = "a", to = "billing", do = "/a" }] => sagas[0].steps[1].name: an earlier step is called a, too
[[sagas]] ; name = "s" ; steps = [{ name = "a", to = "billing", do = "/a" }] ; [[sagas]] ; name = "s" ; steps = [{ name = "a", to = "billing", do = "/a" }] => line 5, sagas[1].name: there is another saga "s"
[[retries]] ; name = "r" ; [[retries]] ; name = "r" => line 4, retries[1].name: there is another policy "r"
[[retries]] ; name = "r" ; attempts = 3 => line 3, retries[0].attempts: unknown key
[[endpoints]] ; name = "billing" ; url = "http://h" => line 5, endpoints[1].name: there is another endpoint "billing"
"#;

#[test]
fn each_mistake_has_its_message() {
    for row in MISTAKES.lines().skip(1) {
        let (lines, want) = row.split_once(" => ").unwrap();
        let lines = lines.replace(" ; ", "\n");
        let found = wrong(&format!("{lines}{SMALLEST}"), &[DATABASE]);
        assert!(found[0].contains(want), "{row}: {found:?}");
        assert_eq!(found.len(), 1, "{row}: {found:?}");
    }
}

/// URLs of an endpoint, and what must be said of them.
const URLS: &str = r#"
http://h =>
HTTPS://h:8443/a?b=c =>
http://[::1]:9000/ =>
127.0.0.1:9000/hook => not a URL: relative URL without a base
localhost:9000/hook => must be http or https, found "localhost"
 => not a URL
http:// => not a URL: empty host
http:///hook => must have a host
http:hook => must have a host
http://h/#a => must not have a fragment
http://s3cret@h/ => must not hold credentials
http://u:s3cret@h/ => must not hold credentials
postgres://u:s3cret@h/ => must be http or https, found "postgres"
http://h/{topic}/a-{key}.json?t={type}&i={id} =>
http://{topic}.h/ => a field in braces can stand in the path and the query only
http://{key}@h/ => a field in braces can stand in the path and the query only
http://h/{tpoic} => braces stand for a field of the row, one of {topic}, {key}, {type}, {id}; for the characters write %7B
http://h/{key => braces stand for a field
http://u:s3cret@h:x/ => not a URL: invalid port number
"#;

#[test]
fn urls_of_endpoints_are_checked() {
    for row in URLS.lines().skip(1) {
        let (url, want) = row.split_once(" =>").unwrap();
        let text = SMALLEST.replace("http://127.0.0.1:9000/hook", url);
        if want.is_empty() {
            assert!(read(&text, &[DATABASE]).is_ok(), "{row}");
            continue;
        }
        let found = wrong(&text, &[DATABASE]);
        let want = format!("line 4, endpoints[0].url: {}", want.trim());
        assert!(found[0].starts_with(&want), "{row}: {found:?}");
        assert_eq!(found.len(), 1, "{row}: {found:?}");
        assert!(!found[0].contains("s3cret"), "{row}: {found:?}");
    }
}

#[test]
fn lists_that_must_not_be_empty() {
    let want = [
        "endpoints: no endpoints: at least one [[endpoints]] with a name and a url is needed",
        "routes: no routes: at least one [[routes]] with topic and to is needed",
    ];
    assert_eq!(wrong("", &[DATABASE]), want);
    let text = "[endpoints]\nname = \"a\"\n[[routes]]\ntopic = \"a\"\nto = [\"a\"]\n[defaults]\ntimeout = 1";
    let want = [
        "line 1, endpoints: expected a list of tables, each under [[endpoints]], found a table",
        "line 7, defaults.timeout: 1 has no unit: add one of ms, s, m, h, d, as in \"1s\"",
    ];
    assert_eq!(wrong(text, &[DATABASE]), want);
}

#[test]
fn what_is_no_toml_is_reported_with_its_line() {
    let table = [
        ("[relay\nlease = 5", 1),
        ("[relay]\n\nlease = 15s", 3),
        ("[relay]\nlease = \"15s", 2),
        ("[relay]\nlease = \"1s\"\nlease = \"2s\"", 3),
        ("[relay]\n[relay]", 2),
        ("[database]\nurl = postgres://u:s3cret@h", 2),
        ("[database]\nurl = \"postgres://u:s3cret@h", 2),
        ("[database]\nurl = \"postgres://u:s3cret\\@h\"", 2),
    ];
    for (text, line) in table {
        let problems = read(text, &[DATABASE]).unwrap_err();
        assert_eq!(problems.list[0].line, Some(line), "{text}: {problems}");
        assert!(
            problems.to_string().contains("not valid TOML: "),
            "{problems}"
        );
        assert!(!problems.to_string().contains("s3cret"), "{problems}");
    }
    assert_eq!(wrong("a = 1s\nb = 2\nc = 3s", &[]).len(), 2);
}

/// Overrides, and what must be said of them.
const OVERRIDES: &str = r#"
OUTBOX__RELAY__LEASE=5 => 5 has no unit
OUTBOX__RELAY__LEASE= => expected a duration
OUTBOX__RELAY__BATCH=many => expected a whole number such as 200, found "many"
OUTBOX__RELAY__BATCH=0 => must be from 1 to 1000, found 0
OUTBOX__DEFAULTS__RETRY__FACTOR=x => expected a number such as 2.0, found "x"
OUTBOX__ENDPOINTS__BILLING__URL=ftp://h => must be http or https, found "ftp"
OUTBOX__ENDPOINTS__BILLING__NAME=x => no such setting
OUTBOX__ENDPOINTS__BILING__URL=http://h => no such setting, or no such endpoint in this file; did you mean OUTBOX__ENDPOINTS__BILLING__URL?
OUTBOX__ROUTES__TO=x => no such setting
OUTBOX__=x => no such setting
OUTBOX__ENDPOINTS__A_B__URL=http://h => could mean endpoints[1].url or endpoints[2].url
OUTBOX__DATABASE__URL=s3cret => must be a URL
OUTBOX__DATABASE__URL_FILE=/no/such/file => can't be read
"#;

#[test]
fn overrides_can_be_wrong_too() {
    let twin = |name| format!("[[endpoints]]\nname = \"{name}\"\nurl = \"http://h\"\n");
    let text = format!("{SMALLEST}{}{}", twin("a-b"), twin("a_b"));
    for row in OVERRIDES.lines().skip(1) {
        let (variable, want) = row.split_once(" => ").unwrap();
        let (name, value) = variable.split_once('=').unwrap();
        let found = wrong(&text, &[DATABASE, (name, value)]);
        let want = format!("environment {name}: {want}");
        assert!(found[0].starts_with(&want), "{row}: {found:?}");
        assert_eq!(found.len(), 1, "{row}: {found:?}");
        assert!(!found[0].contains("s3cret"), "{row}: {found:?}");
    }
}

#[test]
fn a_name_of_a_variable_stays_on_its_line() {
    let found = wrong(SMALLEST, &[DATABASE, ("OUTBOX__A\nb: c", "1")]);
    assert!(
        found[0].starts_with("environment OUTBOX__A\\nb: c: no such setting"),
        "{found:?}"
    );
}

#[test]
fn what_is_inherited_and_wrong_is_said_once() {
    let more = "[[endpoints]]\nname = \"b\"\nurl = \"http://h\"\n[defaults]\n";
    for wrong in [
        "timeout = 5",
        "retry = 5",
        "retry.base = \"2h\"",
        "retry = { base = 1, cap = \"1ms\" }",
    ] {
        wrong_addition(&format!("{more}{wrong}"));
    }
}

#[test]
fn a_file_that_is_not_there_is_a_problem() {
    let problems = load(Path::new("/no/such/relay.toml")).unwrap_err();
    let shown = problems.to_string();
    assert!(
        shown.starts_with("/no/such/relay.toml: can't be read: "),
        "{shown}"
    );
}
