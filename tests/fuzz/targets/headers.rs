//! A row's own headers: the request has them, or there is none; ours are what they would be without them.
//!
//! Parts: topic, key, type, content type, body, then names and values.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outbox_relay::{
    delivery::{Endpoint, auth, format::Shape, fuzz::Requests, headers::reserved},
    message::Delivery,
};
use outbox_relay_fuzz::{Parts, assert_legal, file, now};
use reqwest::header::{HeaderName, HeaderValue};

fn endpoints() -> Vec<Endpoint> {
    let url = "http://h.example/hook".parse().unwrap();
    let raw = Endpoint::new("raw", url);
    let mut binary = raw.clone();
    binary.format.shape = Shape::Binary {
        source: "/shop".into(),
    };
    let mut structured = raw.clone();
    structured.format.shape = Shape::Structured {
        source: "/shop".into(),
    };
    let mut full = raw.clone();
    full.format.headers = vec![(
        HeaderName::from_static("x-ours"),
        HeaderValue::from_static("1"),
    )];
    full.format.header_files = vec![(HeaderName::from_static("x-secret"), file("header", b"word"))];
    full.auth = auth::Config::Bearer {
        file: file("token", b"word"),
    };
    full.idempotency.header = HeaderName::from_static("x-key");
    full.sign.secret_files = vec![file("sign", b"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")];
    vec![raw, binary, structured, full]
}

thread_local! {
    static REQUESTS: Vec<Requests> =
        endpoints().iter().map(|endpoint| Requests::new(endpoint).unwrap()).collect();
}

fuzz_target!(|input: &[u8]| {
    let row = Parts::new(input).row(7);
    let bare = Delivery {
        headers: Vec::new(),
        ..row.clone()
    };
    REQUESTS.with(|all| {
        for requests in all {
            let Ok((without, _)) = now(requests.of(&[&bare], false)) else {
                // Its content type is none.
                assert!(now(requests.of(&[&row], false)).is_err());
                continue;
            };
            assert_legal(without.headers());
            let Ok((request, _)) = now(requests.of(&[&row], false)) else {
                assert!(!row.headers.is_empty());
                continue;
            };
            assert_legal(request.headers());
            assert_eq!(request.url(), without.url());
            // The trace context of a CloudEvent is the one thing that a row says by a header.
            let traced = ["ce-traceparent", "ce-tracestate"];
            for name in without.headers().keys() {
                let of = |request: &reqwest::Request| -> Vec<HeaderValue> {
                    request.headers().get_all(name).iter().cloned().collect()
                };
                if !name.as_str().starts_with("webhook-") {
                    assert_eq!(of(&request), of(&without), "{name}");
                }
            }
            let own = |name: &str| {
                row.headers
                    .iter()
                    .any(|(own, _)| own.eq_ignore_ascii_case(name))
            };
            for name in request
                .headers()
                .keys()
                .filter(|name| !without.headers().contains_key(*name))
            {
                assert!(!reserved(name.as_str()), "{name}");
                assert!(
                    own(name.as_str()) || traced.contains(&name.as_str()),
                    "{name}"
                );
            }
            for (name, value) in &row.headers {
                let sent = request.headers().get_all(name.as_str());
                let value = value.trim_matches([' ', '\t']);
                assert!(sent.iter().any(|sent| sent == value), "{name}: {value:?}");
            }
        }
    });
});
