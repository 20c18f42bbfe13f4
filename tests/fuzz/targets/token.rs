//! The answer of a token's server.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use outbox_relay::delivery::fuzz;
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let document = serde_json::from_slice::<Value>(body);
    match fuzz::granted(body) {
        Ok((value, life)) => {
            assert!(value.is_sensitive());
            let token = value.to_str().unwrap().strip_prefix("Bearer ").unwrap();
            assert!(!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
            // A clock can bear it.
            assert!(life.is_none_or(|life| life < Duration::from_secs(u32::MAX.into())));
            // It can't read numbers that are too large, nor see the first of two members.
            let Ok(document) = document else { return };
            // An array of the members' values is one too, for serde.
            let written = document.get("access_token").or(document.get(0));
            assert_eq!(written.and_then(Value::as_str), Some(token));
        }
        Err(error) => assert!(!error.is_empty()),
    }
});
