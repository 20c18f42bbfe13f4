//! The database's URL or libpq string: no error shows anything of the password, wherever its special characters lead the
//! parser.
//!
//! Parts: `url` or anything else for a libpq string, the password (`$` for what must not be seen), what follows.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use outbox_relay::store::{Config, Store};
use outbox_relay_fuzz::{Parts, assert_one_line, marked, unmarked};

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let is_url = parts.bytes() == b"url";
    let password = marked(&parts.text());
    let rest = unmarked(&parts.text());
    let config = |password: &str| Config {
        url: match is_url {
            true => format!("postgres://u:{password}@h/{rest}"),
            false => format!("host=h user=u password={password} {rest}"),
        },
        url_file: Some("/run/secrets/url".into()),
        // To read the system's authorities takes long.
        ca_file: Some("/none".into()),
        lenient: false,
        guard: None,
    };
    let ours = config(&password);
    match Store::single(&ours, Duration::from_secs(1)) {
        Ok(_) => {
            assert!(ours.leads_to(&ours));
            // Another password leads to the same place, if it has nothing that leads elsewhere.
            let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if plain(&password) && !password.is_empty() && !rest.contains('@') {
                assert!(config("other").leads_to(&ours) && ours.leads_to(&config("other")));
            }
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains("Hunter2"), "{text}");
            assert!(!text.is_empty());
            assert_one_line(&text);
        }
    }
    assert!(!format!("{ours:?}").contains("Hunter2"));
});
