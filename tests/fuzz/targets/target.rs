//! A URL with fields of a row: whatever the row holds, it goes to the same host, and its values stay where they stand.
//!
//! Parts: what follows the host in the configuration, topic, key, type.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use outbox_relay::{config::parse, delivery::fuzz};
use outbox_relay_fuzz::{Parts, assert_one_line};
use reqwest::Url;

fn place(url: &Url) -> (String, Option<String>, Option<u16>) {
    (
        url.scheme().to_owned(),
        url.host_str().map(str::to_owned),
        url.port(),
    )
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let url = format!("https://h.example:8443/{}", parts.text());
    let row = parts.row(7);
    // As the configuration reads it.
    let url = serde_json::to_string(&url).unwrap();
    let file = format!(
        "[[endpoints]]\nname = \"a\"\nurl = {url}\n[[routes]]\ntopic = \"**\"\nto = [\"a\"]\n"
    );
    let environment = BTreeMap::from([("DATABASE_URL".to_owned(), "postgres://h/d".to_owned())]);
    let Ok(config) = parse("relay.toml", &file, &environment, "host") else {
        return;
    };
    let url = &config.endpoints[0].url;
    // So the configuration checks it, and so the client does.
    assert!(url.as_str().parse::<http::Uri>().is_ok(), "{url}");
    assert_eq!(
        place(url),
        ("https".into(), Some("h.example".into()), Some(8443))
    );
    let of = match fuzz::target(url, &row) {
        Ok(of) => of,
        Err(error) => {
            assert!(!error.is_empty());
            let short: String = error.chars().take(100).collect();
            assert_one_line(&short);
            return;
        }
    };
    assert_eq!(place(&of), place(url));
    assert_eq!(
        (of.username(), of.password(), of.fragment()),
        ("", None, None)
    );
    assert_eq!(of.query().is_some(), url.query().is_some());
    assert!(of.as_str().len() <= 8000 && of.as_str().is_ascii());
    assert!(of.as_str().parse::<http::Uri>().is_ok(), "{of}");
    // What the next parser reads is the same.
    assert_eq!(Url::parse(of.as_str()).as_ref(), Ok(&of));
    let segments =
        |url: &Url| -> Vec<String> { url.path().split('/').map(str::to_owned).collect() };
    let (wanted, found) = (segments(url), segments(&of));
    assert_eq!(wanted.len(), found.len(), "{url} {of}");
    for (wanted, found) in wanted.iter().zip(&found) {
        let field = ["topic", "key", "type", "id"]
            .iter()
            .any(|field| wanted.contains(&format!("%7B{field}%7D")));
        assert!(field || wanted == found, "{url} {of}");
        let plain = found.to_ascii_lowercase().replace("%2e", ".");
        assert!(!field || !matches!(plain.as_str(), "" | "." | ".."), "{of}");
    }
    let pairs = |url: &Url| {
        url.query()
            .unwrap_or_default()
            .split(['&', ';', '='])
            .count()
    };
    assert_eq!(pairs(url), pairs(&of), "{url} {of}");
});
