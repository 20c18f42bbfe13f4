//! The configuration: a file and overrides from the environment, into something that can run or a list of mistakes.
//!
//! Parts: the file, what stands before and behind the secret in DATABASE_URL, then names and values of overrides.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::fuzz_target;
use outbox_relay::config::parse;
use outbox_relay_fuzz::{MARK, Parts, unmarked};

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let text = unmarked(&parts.text());
    let url = format!(
        "{}{MARK}{}",
        unmarked(&parts.text()),
        unmarked(&parts.text())
    );
    let mut environment = BTreeMap::from([("DATABASE_URL".to_owned(), url)]);
    for (name, value) in parts.pairs() {
        environment.insert(format!("OUTBOX__{}", unmarked(&name)), unmarked(&value));
    }
    // database.url_file is read, whatever it is.
    let devices = |text: &String| text.contains("/dev") || text.contains("/proc");
    if devices(&text) || environment.values().any(devices) {
        return;
    }
    let read = || parse("relay.toml", &text, &environment, "host-1");
    match read() {
        Ok(config) => {
            let names: BTreeSet<&str> = config.endpoints.iter().map(|e| e.name.as_str()).collect();
            assert!(!names.is_empty());
            assert_eq!(names.len(), config.endpoints.len(), "each name once");
            for endpoint in &config.endpoints {
                assert!(endpoint.connect_timeout <= endpoint.timeout);
                assert!(
                    matches!(endpoint.url.scheme(), "http" | "https") && endpoint.url.has_host()
                );
                let window = endpoint.retry.window();
                assert!(
                    window.average <= window.longest
                        && window.attempts <= endpoint.retry.max_attempts
                );
                for attempt in [1, 2, 20, u32::MAX] {
                    let backoff = &endpoint.retry.backoff;
                    assert!(backoff.upper(attempt) <= backoff.cap(), "{backoff:?}");
                }
            }
            let targets: Vec<_> = config.routes.iter().flat_map(|route| &route.to).collect();
            assert!(!targets.is_empty());
            assert!(
                targets
                    .iter()
                    .all(|target| names.contains(target.endpoint.as_str()))
            );
            assert_eq!(config.digest.len(), 16);
            assert!(!format!("{config:?}").contains(MARK));
            assert_eq!(read().as_ref(), Ok(&config), "the same text means the same");
        }
        Err(problems) => {
            assert!(!problems.list.is_empty());
            let lines = text.lines().count() + 1;
            for problem in &problems.list {
                assert!(
                    problem.line.is_none_or(|line| (1..=lines).contains(&line)),
                    "{problem}"
                );
                let shown = problem.to_string();
                assert!(!shown.contains(MARK), "{shown}");
                assert!(
                    !shown.contains(['\n', '\r', '\0']),
                    "one line each: {shown:?}"
                );
                assert!(!problem.message.is_empty());
                let syntax = problem.message.starts_with("not valid TOML");
                let placed = problem.line.is_some() || !problem.key.is_empty();
                assert!(
                    syntax || (placed && !problem.key.is_empty()),
                    "{shown}: where?"
                );
            }
        }
    }
});
