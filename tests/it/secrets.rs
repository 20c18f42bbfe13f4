//! No secret leaves the process but in the request that it is for: not into logs, the database, or what commands print,
//! whatever a receiver does with what it was sent.

use base64::{Engine, prelude::BASE64_STANDARD};
use outbox_relay::lab::receiver::{Receiver, Reply, Request};
use tokio_postgres::Client;

use crate::support::{
    binary::{Directory, outbox_relay},
    database, eventually,
    rows::{SOON, count, one},
};

/// Each stands in a file or the database's URL, and in nothing that may come out. The pair is what Basic makes of its password.
const SECRETS: [&str; 14] = [
    "db-s3cret",
    "bearer-s3cret",
    "basic-s3cret",
    "aGFucGVyOmJhc2ljLXMzY3JldA",
    "client-s3cret",
    "access-s3cret",
    "header-s3cret",
    "c2lnbmluZy1zM2NyZXQtc2lnbmluZy1zM2NyZXQ",
    "signing-s3cret",
    "sl4sh-s3cret",
    "live-s3cret",
    "open sesame-s3cret",
    "sesame-s3cret",
    "result-s3cret",
];

/// A receiver that is too helpful: it sends back all that it got, and its credentials in each form that somebody writes.
fn echo(request: &Request) -> Reply {
    let mut text = String::new();
    let mut credentials = String::new();
    for (name, value) in &request.headers {
        let value = value.to_str().unwrap_or("?");
        if name != "authorization" && !name.as_str().starts_with("x-") {
            continue;
        }
        credentials.push_str(&format!("{name}/{value} "));
        // As PHP and Gson write JSON, and as a URL has it.
        let forms = [
            value.replace('/', "\\/"),
            value.replace('=', "\\u003d").replace('/', "\\u002F"),
            value.bytes().map(escaped).collect(),
        ];
        text.push_str(&forms.join(" "));
        if let Some(pair) = value.strip_prefix("Basic ") {
            let pair = BASE64_STANDARD.decode(pair).unwrap();
            text.push_str(&String::from_utf8_lossy(&pair));
        }
    }
    text.push_str(&format!("{} {}\n", request.method, request.path));
    for (name, value) in &request.headers {
        text.push_str(&format!("{name}: {}\n", value.to_str().unwrap_or("?")));
    }
    let status = if request.path == "/5" { 302 } else { 500 };
    Reply::status(status)
        .header("location", &format!("/{credentials}"))
        .body(text)
}

/// A byte but for letters and digits behind a percent sign.
fn escaped(byte: u8) -> String {
    match byte.is_ascii_alphanumeric() || byte == b'-' {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    }
}

/// Refuses each message of a batch, and says which key it came with; JSON hides it from who does not unescape it.
fn refuse_each(request: &Request) -> Reply {
    let key = request.header("x-api-key").unwrap_or_default();
    let key: String = key.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    let items: Vec<serde_json::Value> = serde_json::from_slice(&request.body).unwrap();
    let result = |item: &serde_json::Value| {
        let id = &item["id"];
        format!(r#"{{"id":{id},"status":422,"error":"no rights with {key}"}}"#)
    };
    let results: Vec<String> = items.iter().map(result).collect();
    Reply::status(207).body(format!(r#"{{"results":[{}]}}"#, results.join(",")))
}

fn answers(request: &Request) -> Reply {
    if request.path.starts_with("/token") {
        return Reply::status(200)
            .header("content-type", "application/json")
            .body(r#"{"access_token":"access-s3cret","token_type":"Bearer","expires_in":3600}"#);
    }
    if request.path == "/7" {
        return refuse_each(request);
    }
    echo(request)
}

#[tokio::test]
async fn no_secret_comes_out_whatever_a_receiver_sends_back() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(answers).unwrap();
    let directory = Directory::new();
    let file = |name: &str, text: &str| directory.write(name, text).display().to_string();
    let auth = [
        format!("bearer_file = \"{}\"", file("bearer", "bearer-s3cret\n")),
        format!(
            "basic = {{ user = \"hanper\", password_file = \"{}\" }}",
            file("basic", "basic-s3cret\n")
        ),
        format!(
            "oauth2 = {{ token_url = \"{}\", client_id = \"me\", client_secret_file = \"{}\" }}",
            receiver.url("/token"),
            file("client", "client-s3cret\n")
        ),
        format!(
            "header_files = {{ X-Api-Key = \"{}\" }}\nbatch = {{ messages = 10 }}",
            file("header", "header-s3cret\n")
        ),
        format!(
            "sign = {{ secret_files = [\"{}\"] }}",
            file(
                "signing",
                "whsec_c2lnbmluZy1zM2NyZXQtc2lnbmluZy1zM2NyZXQ=\n"
            )
        ),
        format!(
            "bearer_file = \"{}\"",
            file("slashes", "sk/live-s3cret/AAAA+sl4sh-s3cret==\n")
        ),
        format!(
            "header_files = {{ X-Api-Key = \"{}\" }}",
            file("blanks", "open sesame-s3cret now\n")
        ),
        format!(
            "header_files = {{ X-Api-Key = \"{}\" }}\nbatch = {{ messages = 10 }}",
            file("result", "result-s3cret\n")
        ),
    ];
    let mut text = String::from("[relay]\nlease = \"2s\"\npoll = \"20ms\"\n");
    for (n, auth) in auth.iter().enumerate() {
        text.push_str(&format!(
            "[[endpoints]]\nname = \"e{n}\"\nurl = \"{}\"\nretry = {{ max_attempts = 2, base = \"10ms\", cap = \"10ms\" }}\n{auth}\n\
             [[routes]]\ntopic = \"t{n}\"\nto = [\"e{n}\"]\n",
            receiver.url(&format!("/{n}"))
        ));
    }
    let config = directory.write("relay.toml", &text);
    let mut url: reqwest::Url = database.url.parse().unwrap();
    url.set_password(Some("db-s3cret")).unwrap();

    let relay = directory.run_with(&config, url.as_str(), "relay", ("RUST_LOG", "trace"));
    for topic in 0..auth.len() {
        let insert = format!(
            "insert into outbox.messages (topic, payload) values ('t{topic}', '1'), ('t{topic}', '2')"
        );
        client.batch_execute(&insert).await.unwrap();
    }
    eventually("all are dead", SOON, async || {
        count(&client, "dead_letters").await == i64::try_from(2 * auth.len()).unwrap()
    })
    .await;
    assert!(relay.limits().contains("Max core file size        0 "));
    let mut out = relay.log();
    assert!(out.contains("TRACE"), "the logs say all that they can");
    for arguments in [
        vec!["check", "--config", config.to_str().unwrap()],
        vec!["status", "--json"],
        vec!["status"],
    ] {
        let output = outbox_relay(url.as_str(), &arguments).await;
        out.push_str(&String::from_utf8_lossy(&output.stdout));
        out.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    out.push_str(&everything(&client).await);
    // The receiver did send them back, and the history shows that.
    assert!(
        receiver
            .requests()
            .iter()
            .any(|request| request.header("x-api-key") == Some("header-s3cret"))
    );
    let shown: i64 = one(
        &client,
        "select count(distinct endpoint) from outbox.attempts where response like '%[redacted]%'",
    )
    .await;
    assert_eq!(shown, 7, "{out}");
    let errors = "select count(distinct endpoint) from outbox.attempts where error like";
    for (error, want) in [
        (
            "HTTP 302 Found, Location: http://%/authorization/Bearer\\%20[redacted]%",
            1,
        ),
        (
            "HTTP 422 Unprocessable Entity: no rights with [redacted]",
            1,
        ),
    ] {
        let shown: i64 = one(&client, &format!("{errors} '{error}'")).await;
        assert_eq!(shown, want, "{error}: {out}");
    }
    for secret in SECRETS {
        let lines: Vec<&str> = out.lines().filter(|line| line.contains(secret)).collect();
        assert!(lines.is_empty(), "{secret}: {lines:#?}");
    }
}

/// All rows of all tables, as text.
async fn everything(client: &Client) -> String {
    let tables = "select c.oid::regclass::text from pg_class c
                   where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition";
    let mut text = String::new();
    for row in client.query(tables, &[]).await.unwrap() {
        let all = format!(
            "select coalesce(string_agg(t::text, chr(10)), '') from {} t",
            row.get::<_, &str>(0)
        );
        text.push_str(&one::<String>(client, &all).await);
    }
    text
}
