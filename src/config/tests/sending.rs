//! What requests look like, as the file says it.

use super::*;
use crate::delivery::{Endpoint, auth, format::Shape, idempotency::Format, sign::Secret};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// The endpoint `billing` of the smallest form with `keys` in it and `defaults` before it (` ; ` = a line break).
fn billing(keys: &str, defaults: &str, variables: &[(&str, &str)]) -> Result<Endpoint, Problems> {
    let keys = format!("{keys}\n[[routes]]").replace(" ; ", "\n");
    let text = SMALLEST.replace("[[routes]]", &keys);
    let text = format!("[defaults]\n{}\n{text}", defaults.replace(" ; ", "\n"));
    let mut variables = variables.to_vec();
    variables.push(DATABASE);
    read(&text, &variables).map(|mut config| config.endpoints.remove(0))
}

/// What an endpoint's keys are, and what must be said of them. The keys start at line 8.
fn each_is_wrong(table: &str) {
    for row in table.lines().skip(1) {
        let (keys, want) = row.split_once(" => ").unwrap();
        let keys = keys.replace("SECRET", SECRET);
        let problems = billing(&keys, "", &[]).expect_err(row);
        let shown = problems.list[0].to_string();
        assert!(shown.contains(want), "{row}: {shown}");
        assert_eq!(problems.list.len(), 1, "{row}: {problems}");
        assert!(!shown.contains("s3cret"), "{row}: {shown}");
    }
}

fn secrets(texts: &[&str]) -> Vec<Secret> {
    texts.iter().map(|s| Secret::parse(s).unwrap()).collect()
}

#[test]
fn secrets_are_listed_inherited_and_overridden() {
    let both =
        format!("sign = {{ secrets = [\"{SECRET}\", \"{OTHER}\"], secret_files = [\"/a\"] }}");
    let endpoint = billing(&both, "", &[]).unwrap();
    assert_eq!(endpoint.sign.secrets, secrets(&[SECRET, OTHER]));
    assert_eq!(endpoint.sign.secret_files, [Path::new("/a")]);
    assert!(!format!("{endpoint:?}").contains("MfKQ9r8G"));

    let endpoint = billing("sign.secret_files = [\"/b\"]", &both, &[]).unwrap();
    assert_eq!(endpoint.sign.secrets, secrets(&[SECRET, OTHER]));
    assert_eq!(endpoint.sign.secret_files, [Path::new("/b")]);

    let endpoint = billing("sign = { secrets = [], secret_files = [] }", &both, &[]).unwrap();
    assert_eq!(endpoint.sign, Default::default());

    let list = format!("{OTHER}, {SECRET}");
    let variable = ("OUTBOX__ENDPOINTS__BILLING__SIGN__SECRETS", list.as_str());
    let endpoint = billing("", "", &[variable]).unwrap();
    assert_eq!(endpoint.sign.secrets, secrets(&[OTHER, SECRET]));
}

#[test]
fn secrets_are_no_part_of_the_digest_but_their_files_are() {
    let digest = |secret: &str, file: &str| {
        let keys = format!(
            "sign = {{ secrets = [\"{secret}\"], secret_files = [\"{file}\"] }}\n[[routes]]"
        );
        read(&SMALLEST.replace("[[routes]]", &keys), &[DATABASE])
            .unwrap()
            .digest
    };
    assert_eq!(digest(SECRET, "/a"), digest(OTHER, "/a"));
    assert_ne!(digest(SECRET, "/a"), digest(SECRET, "/b"));
}

const SIGN: &str = r#"
sign = "s3cret" => line 8, endpoints[0].sign: expected a table, found a text
sign = {} => line 8, endpoints[0].sign.secrets: would sign nothing
sign.secrets = ["SECRET"] ; sign.secret = "s3cret" => line 9, endpoints[0].sign.secret: unknown key; did you mean secrets?
sign.secrets = "SECRET" => line 8, endpoints[0].sign.secrets: expected a list of secrets such as "whsec_…", found a text
sign.secrets = ["SECRET", "whsec_s3cret"] => line 8, endpoints[0].sign.secrets[1]: what follows whsec_ must be base64
sign.secrets = [ ; "SECRET", ; 5] => line 10, endpoints[0].sign.secrets[1]: expected secrets such as "whsec_…", found a value of type integer
sign.secrets = ["s3cret"] => a signing secret must begin with whsec_ (shared secret) or whsk_ (private key)
sign.secret_files = ["/a", ""] => endpoints[0].sign.secret_files[1]: a path must not be empty
sign.secret_files = [[]] => endpoints[0].sign.secret_files[0]: expected paths such as "/run/secrets/billing", found a list
"#;

#[test]
fn what_is_wrong_with_secrets_is_said_without_them() {
    each_is_wrong(SIGN);
    let variable = ("OUTBOX__DEFAULTS__SIGN__SECRETS", "whsec_s3cret");
    let problems = billing("", "", &[variable]).unwrap_err().to_string();
    let want = "relay.toml: environment OUTBOX__DEFAULTS__SIGN__SECRETS: what follows whsec_";
    assert!(
        problems.starts_with(want) && !problems.contains("s3cret"),
        "{problems}"
    );
}

#[test]
fn the_key_can_be_written_in_other_ways() {
    let endpoint = billing("", "", &[]).unwrap();
    let key = endpoint.idempotency;
    assert_eq!(
        (key.format, key.header.as_str()),
        (Format::String, "idempotency-key")
    );
    let defaults = "idempotency = { format = \"bare\", ttl = \"12h\" }";
    let endpoint = billing("idempotency.header = \"X-Request-Id\"", defaults, &[]).unwrap();
    let key = endpoint.idempotency.clone();
    assert_eq!(
        (key.format, key.header.as_str()),
        (Format::Bare, "x-request-id")
    );
    assert_eq!(key.ttl, seconds(12 * 3600));
    assert_eq!(
        endpoint.warnings(&endpoint.retry, units::show_duration),
        Vec::<String>::new()
    );
    let retry = "retry.max_attempts = 100 ; idempotency.header = \"IDEMPOTENCY-KEY\"";
    let endpoint = billing(retry, defaults, &[]).unwrap();
    let [warning] = endpoint
        .warnings(&endpoint.retry, units::show_duration)
        .try_into()
        .unwrap();
    assert!(warning.ends_with(
        "forgets keys after 12h (idempotency.ttl): it may take a late one for a new message"
    ));
}

const IDEMPOTENCY: &str = r#"
idempotency = "bare" => line 8, endpoints[0].idempotency: expected a table, found a text
idempotency.format = "quoted" => expected "string" or "bare" or "none", found "quoted"
idempotency.ttl = "1ms" => endpoints[0].idempotency.ttl: must be at least 1s, found "1ms"
idempotency.header = "a b" => endpoints[0].idempotency.header: "a b" is no legal header name
idempotency.header = "Host" => "Host" is a header that HTTP or the relay sets
idempotency.header = "Outbox-Key" => "Outbox-Key" is a header that HTTP or the relay sets
"#;

#[test]
fn what_is_wrong_with_the_key_is_said() {
    each_is_wrong(IDEMPOTENCY);
}

/// Keys of the endpoint | of the defaults => what the credentials are.
const CREDENTIALS: &str = r#"
 |  => None
bearer_file = "/a" |  => Bearer { file: "/a" }
 | bearer_file = "/a" => Bearer { file: "/a" }
bearer_file = "/b" | bearer_file = "/a" => Bearer { file: "/b" }
basic = { user = "u", password_file = "/p" } | bearer_file = "/a" => Basic { user: "u", password_file: "/p" }
basic = { user = "u" } | basic.password_file = "/p" => Basic { user: "u", password_file: "/p" }
bearer_file = "/a" | basic = { user = "u", password_file = "/p" } => Bearer { file: "/a" }
"#;

#[test]
fn credentials_of_an_endpoint_replace_those_it_inherits() {
    for row in CREDENTIALS.lines().skip(1) {
        let (keys, want) = row.split_once(" => ").unwrap();
        let (keys, defaults) = keys.split_once(" | ").unwrap();
        let endpoint = billing(keys, defaults, &[]).expect(row);
        assert_eq!(format!("{:?}", endpoint.auth), want, "{row}");
    }
    let variable = ("OUTBOX__ENDPOINTS__BILLING__BASIC__USER", "v");
    let defaults = "basic = { user = \"u\", password_file = \"/p\" }";
    let endpoint = billing("", defaults, &[variable]).unwrap();
    let want = auth::Config::Basic {
        user: "v".into(),
        password_file: "/p".into(),
    };
    assert_eq!(endpoint.auth, want);
}

const AUTH: &str = r#"
bearer_file = "" => line 8, endpoints[0].bearer_file: must not be empty
bearer_file = "/a" ; basic = { user = "u", password_file = "/p" } => endpoints[0].basic: stands beside bearer_file: an endpoint has one kind of credentials
basic = "u:s3cret" => line 8, endpoints[0].basic: expected a table, found a text
basic.user = "u" => line 8, endpoints[0].basic.password_file: is missing: user and password_file are needed together
basic = { user = "u:v", password_file = "/p" } => endpoints[0].basic.user: must not be empty and have neither colons nor
oauth2 = { token_url = "https://h/t", client_id = "a" } => line 8, endpoints[0].oauth2.client_secret_file: is missing: token_url and client_id and client_secret_file are needed together
oauth2 = { token_url = "https://u:s3cret@h/t", client_id = "a", client_secret_file = "/s" } => endpoints[0].oauth2.token_url: must not hold credentials
oauth2 = { token_url = "https://h/t", client_id = "a", client_secret = "s3cret", client_secret_file = "/s" } => endpoints[0].oauth2.client_secret: unknown key
oauth2 = { token_url = "https://h/t", client_id = "a", client_secret_file = "/s" } ; basic = { user = "u", password_file = "/p" } => endpoints[0].oauth2: stands beside basic
basic = { user = "u", password = "s3cret", password_file = "/p" } => endpoints[0].basic.password: unknown key; known here: password_file, user
"#;

#[test]
fn what_is_wrong_with_credentials_is_said() {
    each_is_wrong(AUTH);
}

#[test]
fn formats_and_headers_are_read_and_inherited() {
    let endpoint = billing("", "", &[]).unwrap();
    assert_eq!(endpoint.format, Default::default());
    let defaults = "source = \"/shop\" ; headers = { X-Env = \"prod\", x-tenant = \"a\" }";
    let keys = "gzip_above = \"1MiB\" ; format = \"cloudevents-binary\" ; method = \"PUT\" ; headers.X-Tenant = \" s3cret\\t\" ; header_files = { X-Key = \"/k\" }";
    let endpoint = billing(keys, defaults, &[]).unwrap();
    let source = "/shop".to_owned();
    assert_eq!(endpoint.format.shape, Shape::Binary { source });
    assert_eq!(endpoint.format.method, "PUT");
    assert_eq!(endpoint.format.gzip_above, Some(1 << 20));
    assert_eq!(
        endpoint.shown(),
        "PUT http://127.0.0.1:9000/hook (guard off)"
    );
    let headers = endpoint.format.headers.iter();
    let headers: Vec<_> = headers.map(|(a, b)| (a.as_str(), b.as_bytes())).collect();
    assert_eq!(
        headers,
        [("x-tenant", b"s3cret".as_slice()), ("x-env", b"prod")]
    );
    assert_eq!(
        endpoint.format.header_files,
        [("x-key".parse().unwrap(), "/k".into())]
    );
    assert!(!format!("{endpoint:?}").contains("s3cret"));
    // What is inherited and not used is no mistake.
    assert_eq!(billing("", defaults, &[]).unwrap().format.shape, Shape::Raw);
}

const FORMATS: &str = r#"
format = "json" => expected "raw" or "cloudevents-binary" or "cloudevents-structured", found "json"
format = "cloudevents-binary" => line 4, endpoints[0].source: is missing: a CloudEvent needs one
format = "cloudevents-structured" ; source = "" => line 9, endpoints[0].source: must be a URI reference
format = "cloudevents-structured" ; source = "a b" => endpoints[0].source: must be a URI reference
source = "/shop" => line 8, endpoints[0].source: means something only with a format of CloudEvents
method = "post" => expected one of POST, PUT, PATCH, DELETE, found "post"
method = "GET" => expected one of POST, PUT, PATCH, DELETE, found "GET"
gzip_above = "100B" => line 8, endpoints[0].gzip_above: must be at least 1KiB, found "100B"
gzip_above = true => expected a size such as "64KiB", found the boolean true
headers = "s3cret" => line 8, endpoints[0].headers: expected a table of texts, found a text
headers.Host = "s3cret" => line 8, endpoints[0].headers.Host: "Host" is a header that HTTP or the relay sets
headers.Idempotency-Key = "s3cret" => "Idempotency-Key" is a header that HTTP or the relay sets
headers."a b" = "s3cret" => endpoints[0].headers."a b": "a b" is no legal header name
headers.X-A = "s3cret\n" => endpoints[0].headers.X-A: may have visible ASCII characters only
headers.X-A = "s3crét" => may have visible ASCII characters only
headers.X-A = 5 => endpoints[0].headers.X-A: expected the header's value as a text, found a value of type integer
headers = { X-A = "1", x-a = "2" } => endpoints[0].headers.x-a: stands here twice, in another spelling
headers.X-A = "1" ; header_files.x-a = "/a" => endpoints[0].header_files: x-a stands in headers as well
header_files.X-A = "" => endpoints[0].header_files.X-A: a path must not be empty
headers.authorization = "s3cret" ; bearer_file = "/a" => endpoints[0].headers: authorization is set by another key
headers.X-Id = "1" ; idempotency.header = "x-id" => endpoints[0].headers: x-id is set by another key
format = "cloudevents-binary" ; source = "/" ; headers.ce-id = "1" => endpoints[0].headers.ce-id: is set by the format
"#;

#[test]
fn what_is_wrong_with_formats_is_said() {
    each_is_wrong(FORMATS);
}

#[test]
fn certificates_are_for_https() {
    let defaults = "ca_file = \"/ca\" ; client_cert_file = \"/c\"";
    let over = ("OUTBOX__ENDPOINTS__BILLING__URL", "https://h/");
    let keys = "client_key_file = \"/k\"";
    let tls = billing(keys, defaults, &[over]).unwrap().tls;
    assert_eq!(tls.ca_file, Some("/ca".into()));
    let client = tls.client.unwrap();
    assert_eq!(
        (client.cert_file, client.key_file),
        ("/c".into(), "/k".into())
    );

    let said = |keys: &str, variables: &[(&str, &str)]| {
        billing(keys, "", variables).unwrap_err().to_string()
    };
    let want = "relay.toml: line 8, endpoints[0].client_cert_file: client_cert_file and client_key_file are needed together";
    assert_eq!(said("client_cert_file = \"/c\"", &[over]), want);
    let want =
        "relay.toml: line 8, endpoints[0].ca_file: means something only with an https:// URL";
    assert_eq!(said("ca_file = \"/ca\"", &[]), want);
}

#[test]
fn a_token_can_be_asked_for() {
    let keys = "oauth2 = { client_id = \"a\", client_secret_file = \"/s\", scope = \"x y\" }";
    let defaults =
        "oauth2 = { token_url = \"https://auth/t\", audience = \"z\" } ; ca_file = \"/ca\"";
    let endpoint = billing(keys, defaults, &[]).unwrap();
    let want = auth::oauth2::Config {
        token_url: "https://auth/t".parse().unwrap(),
        client_id: "a".into(),
        client_secret_file: "/s".into(),
        scope: Some("x y".into()),
        audience: Some("z".into()),
    };
    assert_eq!(endpoint.auth, auth::Config::OAuth2(want));
    assert!(endpoint.is_secure());
    let bearer = billing("bearer_file = \"/b\"", defaults, &[]).unwrap();
    assert_eq!(bearer.auth, auth::Config::Bearer { file: "/b".into() });
}

#[test]
fn braces_that_are_encoded_are_no_field() {
    let url = "http://h/%7Bkey%7D/{key}?%7Bid%7D={id}";
    let variable = ("OUTBOX__ENDPOINTS__BILLING__URL", url);
    let endpoint = billing("", "", &[variable]).unwrap();
    assert_eq!(
        endpoint.shown(),
        "POST http://h/%7bkey%7d/{key}?… (guard off)"
    );
}

const GUARD: &str = r#"
guard = "yes" => line 8, endpoints[0].guard: expected "on", "off" or a table such as { allow = ["10.0.0.0/8"] }, found "yes"
guard = true => line 8, endpoints[0].guard: expected "on", "off" or a table such as { allow = ["10.0.0.0/8"] }, found the boolean true
guard = ["10.0.0.0/8"] => line 8, endpoints[0].guard: expected "on", "off" or a table
guard = {} => line 8, endpoints[0].guard.allow: is missing: expected a list of networks; without any, say guard = "on"
guard = { allow = "10.0.0.0/8" } => line 8, endpoints[0].guard.allow: expected a list of networks such as "10.0.0.0/8", found a text
guard = { allow = ["127.0.0.0/8", "10.0.0.1/8"] } => line 8, endpoints[0].guard.allow[1]: "10.0.0.1/8" has bits behind its prefix: the network is 10.0.0.0/8
guard = { allow = ["127.0.0.0/8"], alow = [] } => line 8, endpoints[0].guard.alow: unknown key; did you mean allow?
guard = "on" => line 6, endpoints[0].url: 127.0.0.1 is a loopback address, which the endpoint's guard refuses
guard = { allow = ["127.0.0.0/8"] } ; oauth2 = { token_url = "https://[::ffff:10.0.0.1]/", client_id = "a", client_secret_file = "/a" } => line 9, endpoints[0].oauth2.token_url: ::ffff:10.0.0.1 is an IPv4-mapped address
"#;

#[test]
fn an_address_can_be_guarded() {
    each_is_wrong(GUARD);
    let name = (
        "OUTBOX__ENDPOINTS__BILLING__URL",
        "https://hook.example/a?b",
    );
    let shown = |keys: &str, defaults: &str, variables: &[(&str, &str)]| {
        let mut all = vec![name];
        all.extend_from_slice(variables);
        billing(keys, defaults, &all).unwrap().guard.to_string()
    };
    let word = |value| ("OUTBOX__ENDPOINTS__BILLING__GUARD", value);
    let list = |value| ("OUTBOX__ENDPOINTS__BILLING__GUARD__ALLOW", value);
    let some = r#"guard = { allow = ["10.0.0.0/8", "::1/128"] }"#;
    let on = r#"guard = "on""#;
    let off = r#"guard = "off""#;
    let both = "on, allows 10.0.0.0/8, ::1/128";
    assert_eq!(shown("", "", &[]), "off");
    assert_eq!(shown(on, "", &[]), "on");
    assert_eq!(shown(some, "", &[]), both);
    // What it says itself takes the place of what it inherits, whole.
    assert_eq!(shown("", some, &[]), both);
    assert_eq!(shown(on, some, &[]), "on");
    assert_eq!(shown(off, on, &[]), "off");
    assert_eq!(shown(some, on, &[]), both);
    for keys in ["", on, some] {
        assert_eq!(shown(keys, on, &[word("off")]), "off", "{keys}");
    }
    for keys in ["", some] {
        let found = shown(keys, on, &[list("fd00::/8, 10.0.0.0/8")]);
        assert_eq!(found, "on, allows fd00::/8, 10.0.0.0/8", "{keys}");
    }
    let endpoint = billing(some, "", &[name]).unwrap();
    let want = format!("POST https://hook.example/a?… (guard {both})");
    assert_eq!(endpoint.shown(), want);

    // Also what [defaults] says counts for the digest, and is wrong whoever inherits it.
    let digest = |guard: &str| {
        let text = format!(
            "[defaults]\n{guard}\n{}",
            SMALLEST.replace("127.0.0.1", "h")
        );
        read(&text, &[DATABASE]).unwrap().digest
    };
    assert_ne!(digest(on), digest(some));
    assert_ne!(digest(on), digest(off));
    let problems = billing(off, r#"guard = { allow = ["x"] }"#, &[]).unwrap_err();
    assert_eq!(problems.list.len(), 1, "{problems}");
    assert_eq!(problems.list[0].key, "defaults.guard.allow[0]");
}

const PROXY: &str = r#"
proxy = "ftp://h" => line 8, endpoints[0].proxy: must be http or https, found "ftp"
proxy = "socks5://h" => must be http or https, found "socks5"
proxy = "" => not a URL
proxy = "http://u:s3cret@h:3128" => must not hold credentials
proxy = "http://h:3128/path" => must have nothing behind its host and port
proxy = "http://h:3128?a" => must have nothing behind its host and port
proxy = 3128 => expected a URL such as "http://proxy:3128", or "none", found the number 3128
proxy_auth_file = "/a" => line 8, endpoints[0].proxy_auth_file: means something only with proxy
proxy = "none" ; proxy_auth_file = "/a" => line 9, endpoints[0].proxy_auth_file: means something only with proxy
guard = { allow = ["127.0.0.0/8"] } ; proxy = "http://h:3128" => line 9, endpoints[0].proxy: can't stand beside a guard that is on
"#;

#[test]
fn a_proxy_can_stand_between() {
    each_is_wrong(PROXY);
    let proxy = r#"proxy = "http://proxy:3128" ; proxy_auth_file = "/run/secrets/proxy""#;
    let endpoint = billing("", proxy, &[]).unwrap();
    let found = endpoint.proxy.clone().unwrap();
    assert_eq!(found.url.as_str(), "http://proxy:3128/");
    assert_eq!(found.auth_file, Some("/run/secrets/proxy".into()));
    let want = "POST http://127.0.0.1:9000/hook (guard off, through the proxy http://proxy:3128)";
    assert_eq!(endpoint.shown(), want);
    assert!(!endpoint.is_secure());
    let secure = billing("ca_file = \"/a\"", "proxy = \"https://proxy\"", &[]);
    assert!(secure.unwrap().is_secure());

    assert_eq!(billing("proxy = \"none\"", proxy, &[]).unwrap().proxy, None);
    let variable = ("OUTBOX__ENDPOINTS__BILLING__PROXY", "none");
    assert_eq!(billing("", proxy, &[variable]).unwrap().proxy, None);
    let variable = ("OUTBOX__ENDPOINTS__BILLING__URL", "https://[2606:2800::1]/");
    let problems = billing("", proxy, &[variable]).unwrap_err();
    let shown = problems.list[0].to_string();
    assert!(shown.contains("use a name"), "{shown}");
    let guarded = r#"guard = { allow = ["127.0.0.0/8"] }"#;
    let problems = billing(guarded, proxy, &[]).unwrap_err();
    assert_eq!(problems.list[0].key, "defaults.proxy");
}

#[test]
fn batches_are_inherited_key_by_key_and_put_off() {
    let batch = |keys: &str, defaults: &str, variables: &[(&str, &str)]| {
        let batch = billing(keys, defaults, variables).unwrap().batch;
        batch.map(|batch| (batch.messages, batch.bytes))
    };
    let mib = 1 << 20;
    let defaults = "batch = { messages = 20, bytes = \"4KiB\" }";
    for (keys, defaults, want) in [
        ("", "", None),
        ("batch = {}", "", Some((100, mib))),
        ("batch.messages = 2", "", Some((2, mib))),
        ("", defaults, Some((20, 4096))),
        ("batch.messages = 1000", defaults, Some((1000, 4096))),
        ("batch = \"none\"", defaults, None),
        ("batch = \"none\"", "", None),
        ("batch = {}", "batch = \"none\"", Some((100, mib))),
        ("", "batch = \"none\"", None),
    ] {
        assert_eq!(batch(keys, defaults, &[]), want, "{keys} | {defaults}");
    }
    let messages = ("OUTBOX__ENDPOINTS__BILLING__BATCH__MESSAGES", "7");
    assert_eq!(batch("", "", &[messages]), Some((7, mib)));
    let none = ("OUTBOX__ENDPOINTS__BILLING__BATCH", "none");
    assert_eq!(batch("", defaults, &[none]), None);
    let url = (
        "OUTBOX__ENDPOINTS__BILLING__URL",
        "http://h/{topic}?t={topic}",
    );
    assert_eq!(batch("batch = {}", "", &[url]), Some((100, mib)));

    let digest = |keys: &str| {
        let text = SMALLEST.replace("[[routes]]", &format!("{keys}\n[[routes]]"));
        read(&text, &[DATABASE]).unwrap().digest
    };
    assert_ne!(digest(""), digest("batch = {}"));
    assert_ne!(digest("batch.messages = 7"), digest("batch = {}"));
    assert_eq!(digest("batch.messages = 100"), digest("batch = {}"));
}

const BATCHES: &str = r#"
batch = 100 => line 8, endpoints[0].batch: expected a table such as { messages = 100, bytes = "1MiB" }, or "none", found the number 100
batch = "all" => line 8, endpoints[0].batch: expected a table such as { messages = 100, bytes = "1MiB" }, or "none", found "all"
batch.messages = 1 => endpoints[0].batch.messages: must be from 2 to 1000, found 1
batch.messages = 1001 => must be from 2 to 1000, found 1001
batch.bytes = "1B" => endpoints[0].batch.bytes: must be from 1KiB to 64MiB, found "1B"
batch.size = 5 => endpoints[0].batch.size: unknown key; known here: bytes, messages
format = "cloudevents-binary" ; source = "/" ; batch = {} => line 8, endpoints[0].format: can't be cloudevents-binary beside batch
"#;

#[test]
fn what_is_wrong_with_batches_is_said() {
    each_is_wrong(BATCHES);
    for url in [
        "http://h/{topic}/{key}",
        "http://h/?i={id}",
        "http://h/{type}",
    ] {
        let variable = ("OUTBOX__ENDPOINTS__BILLING__URL", url);
        let problems = billing("batch = {}", "", &[variable]).unwrap_err();
        let shown = problems.to_string();
        let want = "environment OUTBOX__ENDPOINTS__BILLING__URL: can't have {";
        assert!(shown.contains(want), "{shown}");
        assert_eq!(problems.list.len(), 1, "{shown}");
    }
    let defaults = "batch = {} ; format = \"cloudevents-binary\" ; source = \"/\"";
    let problems = billing("", defaults, &[]).unwrap_err().to_string();
    assert!(problems.contains("defaults.format: can't be"), "{problems}");
    // What is inherited and not used is no mistake.
    assert!(billing("batch = \"none\"", defaults, &[]).is_ok());
    assert!(billing("format = \"raw\"", defaults, &[]).is_ok());
}
