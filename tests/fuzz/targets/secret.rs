//! Signing secrets, alone and in a file with one a line: right ones sign, and wrong ones are not shown.
//!
//! Parts: a secret, a file, a body; `$` for what must not be seen.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outbox_relay::delivery::{Endpoint, fuzz, sign::Secret};
use outbox_relay_fuzz::{MARK, Parts, assert_legal, assert_one_line, file, marked};

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let (text, lines) = (marked(&parts.text()), marked(&parts.text()));
    let body = parts.bytes();
    match Secret::parse(&text) {
        Ok(secret) => {
            assert!(text.starts_with("whsec_") || text.starts_with("whsk_"));
            assert!(!format!("{secret:?}").contains(MARK));
            assert_eq!(Secret::parse(&text).as_ref(), Ok(&secret));
        }
        Err(error) => assert!(!error.to_string().contains("Hunter2"), "{error}"),
    }
    let mut endpoint = Endpoint::new("a", "http://h.example/".parse().unwrap());
    endpoint.sign.secret_files = vec![file("secrets", lines.as_bytes())];
    match fuzz::secrets(&endpoint, body) {
        Ok(headers) => {
            assert_legal(&headers);
            let count = lines.lines().map(str::trim);
            let count = count
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .count();
            let signatures = headers["webhook-signature"].to_str().unwrap();
            let right = |text: &str| text.starts_with("v1,") || text.starts_with("v1a,");
            assert!(count > 0 && signatures.split(' ').all(right));
            assert_eq!(signatures.split(' ').count(), count);
            assert!(
                headers.contains_key("webhook-id") && headers.contains_key("webhook-timestamp")
            );
        }
        Err(error) => {
            assert!(
                !error.contains("Hunter2") && error.contains("secret_files"),
                "{error}"
            );
            assert_one_line(&error);
        }
    }
});
