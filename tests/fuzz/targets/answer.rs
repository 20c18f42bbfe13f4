//! The head of an answer, with any headers, into an outcome and what follows from it.
//!
//! Parts: status, Retry-After, Date, Location, the chunks of the body.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use outbox_relay::{
    delivery::{EXCERPT, fuzz},
    message::{Class, Settlement},
    retry::{Backoff, Policy},
};
use outbox_relay_fuzz::{Parts, assert_one_line};
use rand::{SeedableRng, rngs::StdRng};
use reqwest::Url;

fn policies() -> Vec<Policy> {
    let [short, long] = [Duration::from_millis(1500), Duration::from_secs(900)];
    let all = [
        Backoff::default(),
        Backoff::Full {
            base: short,
            factor: 1.0,
            cap: short,
        },
        Backoff::Decorrelated {
            base: short,
            cap: long,
        },
        Backoff::Fixed {
            delays: vec![long, short],
        },
    ];
    all.map(|backoff| Policy {
        backoff,
        ..Policy::default()
    })
    .to_vec()
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let status = u16::try_from(parts.number()).unwrap_or_default();
    let retry_after = parts.bytes();
    let (date, location) = (parts.bytes(), parts.bytes());
    let chunks = parts.rest();
    let url = Url::parse("https://h.example/hook?t0ken=zz9plural").unwrap();
    let headers: [(&[u8], &[u8]); 3] = [
        (b"retry-after", retry_after),
        (b"date", date),
        (b"location", location),
    ];
    let Some(answered) = fuzz::answered(&url, status, &headers, &chunks, &[]) else {
        return;
    };
    assert!(answered.each.is_none());
    let outcome = answered.whole;
    let success = (200..300).contains(&status);
    assert_eq!(outcome.class == Class::Success, success);
    assert_eq!(outcome.error.is_none(), success);
    if let Some(error) = &outcome.error {
        assert_one_line(error);
        let own = ["t0ken", "zz9plural"]
            .iter()
            .find(|word| error.contains(**word));
        let theirs = String::from_utf8_lossy(location);
        let lower = theirs.to_lowercase();
        // A host is shown as it is meant, without the characters that names may not have.
        let host = url
            .join(&theirs)
            .ok()
            .and_then(|to| to.host_str().map(str::to_owned));
        let says =
            |word: &&str| lower.contains(*word) || host.iter().any(|host| host.contains(*word));
        assert!(own.is_none_or(says), "{error}");
        if let Ok(to) = url.join(&theirs)
            && let Some(password) = to.password().filter(|password| password.len() > 8)
        {
            let host = to.host_str().unwrap_or_default();
            let open = format!("{}{host}{}", to.scheme(), to.path());
            assert!(
                !error.contains(password) || open.contains(password),
                "{error}"
            );
        }
    }
    let text = outcome.response.as_deref().unwrap_or_default();
    assert!(text.len() <= EXCERPT && !text.contains('\0'));
    let digits = !retry_after.is_empty() && retry_after.iter().all(u8::is_ascii_digit);
    match outcome.retry_after {
        Some(delay) => {
            assert!(!success);
            if digits {
                let seconds = std::str::from_utf8(retry_after).unwrap().parse();
                assert_eq!(delay, seconds.map_or(Duration::MAX, Duration::from_secs));
            } else {
                assert!(!date.is_empty(), "a date means nothing without another");
            }
        }
        None => assert!(success || !digits),
    }
    let row = Parts::new(b"t").row(7);
    for policy in policies() {
        let cap = policy.backoff.cap();
        assert!(policy.hint(&outcome) <= cap);
        for (seed, attempts) in [(1, 0), (2, 18)] {
            let delivery = outbox_relay::message::Delivery {
                attempts,
                ..row.clone()
            };
            match policy.settle(&delivery, &outcome, &mut StdRng::seed_from_u64(seed)) {
                Settlement::Retry(delay) | Settlement::PutOff(delay) => {
                    assert!(!success && delay <= cap && delay >= policy.hint(&outcome));
                }
                Settlement::Delivered => assert!(success),
                Settlement::Dead(_) => assert!(!success),
                Settlement::Release => panic!("what was tried is not given back"),
            }
        }
    }
});
