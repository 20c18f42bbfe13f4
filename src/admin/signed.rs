//! Requests that are signed: Standard Webhooks 1.0, and the two older ways that many providers have. Pure.
//!
//! A signature covers the body, and in two of the three schemes its time, too: a request that somebody recorded is refused after five
//! minutes. GitHub's has neither time nor delivery id under the signature, so there the secret is all that protects, and TLS.
//!
//! What is compared is compared in the time that it takes whatever it is; no message shows anything of a secret or a body.

use axum::http::{HeaderMap, HeaderName};
use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use sha2::Sha256;

/// A signature may be so old, or so far ahead, in seconds.
const TOLERANCE: u64 = 5 * 60;

/// Signatures that are looked at in one request.
const MOST: usize = 16;

const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
pub(super) const SIGNATURE: &str = "webhook-signature";
const STRIPE: &str = "stripe-signature";

pub(super) const STALE: &str =
    "the signature's time is more than five minutes off: it is made anew for each attempt";

/// How a request is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `webhook-id`, `webhook-timestamp` and `webhook-signature`: HMAC-SHA256 or ed25519.
    StandardWebhooks,
    /// A header with `sha256=` and the HMAC-SHA256 of the body in hex.
    GitHub,
    /// `Stripe-Signature: t=…,v1=…`: HMAC-SHA256 of time and body in hex.
    Stripe,
}

/// What a signature is checked with.
#[derive(Clone)]
pub(super) enum Key {
    /// Of HMAC-SHA256.
    Shared(Vec<u8>),
    /// Of ed25519.
    Public(Vec<u8>),
}

/// What a request says of its signature.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed {
    /// Signed before the body.
    prefix: String,
    macs: Vec<Vec<u8>>,
    signatures: Vec<Vec<u8>>,
    /// Seconds since 1970.
    at: Option<u64>,
    /// The delivery, where a header names it.
    pub(super) id: Option<String>,
}

// === impl Key ===

impl Key {
    /// Reads a secret; the error shows nothing of it.
    pub(super) fn parse(scheme: Scheme, text: &str) -> Result<Key, &'static str> {
        if scheme != Scheme::StandardWebhooks {
            return Ok(Key::Shared(text.as_bytes().to_vec()));
        }
        let decode = |encoded: &str| {
            BASE64_STANDARD
                .decode(encoded)
                .map_err(|_| "what follows the prefix must be base64, with its padding")
        };
        if let Some(encoded) = text.strip_prefix("whsec_") {
            let bytes = decode(encoded)?;
            return match bytes.len() {
                24..=64 => Ok(Key::Shared(bytes)),
                _ => Err("a whsec_ secret must have 24 to 64 bytes"),
            };
        }
        if let Some(encoded) = text.strip_prefix("whpk_") {
            let bytes = decode(encoded)?;
            return match bytes.len() {
                32 => Ok(Key::Public(bytes)),
                _ => Err("a whpk_ key must have 32 bytes"),
            };
        }
        Err("a secret must begin with whsec_ (shared secret) or whpk_ (public key)")
    }
}

// === impl Signed ===

impl Signed {
    /// Reads the headers; `signature` is where GitHub's stands.
    pub(super) fn read(
        scheme: Scheme,
        headers: &HeaderMap,
        signature: &HeaderName,
    ) -> Result<Signed, &'static str> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut signed = Signed {
            prefix: String::new(),
            macs: Vec::new(),
            signatures: Vec::new(),
            at: None,
            id: None,
        };
        match scheme {
            Scheme::StandardWebhooks => {
                let all = (header(ID), header(TIMESTAMP), header(SIGNATURE));
                let (Some(id), Some(at), Some(given)) = all else {
                    return Err(
                        "webhook-id, webhook-timestamp and webhook-signature are needed, one of each",
                    );
                };
                if id.contains('.') {
                    // Or a part of the id could pass for the time, and that for a part of the body.
                    return Err("webhook-id must have no dot");
                }
                signed.prefix = format!("{id}.{at}.");
                signed.at = Some(seconds(at)?);
                signed.id = Some(id.to_owned());
                for one in given.split(' ').take(MOST) {
                    let (version, encoded) = one.split_once(',').unwrap_or_default();
                    // What can't be read is of a version to come.
                    let Ok(bytes) = BASE64_STANDARD.decode(encoded) else {
                        continue;
                    };
                    match version {
                        "v1" => signed.macs.push(bytes),
                        "v1a" => signed.signatures.push(bytes),
                        _ => {}
                    }
                }
            }
            Scheme::GitHub => {
                let given = header(signature.as_str()).ok_or("a signature is needed")?;
                let mac = given.strip_prefix("sha256=").and_then(hex);
                signed
                    .macs
                    .push(mac.ok_or("a signature must be sha256= and hex digits")?);
            }
            Scheme::Stripe => {
                let given = header(STRIPE).ok_or("Stripe-Signature is needed")?;
                let mut at = None;
                for part in given.split(',').take(MOST) {
                    match part.trim().split_once('=').unwrap_or_default() {
                        ("t", text) => at = Some(text),
                        ("v1", text) => signed.macs.extend(hex(text)),
                        _ => {}
                    }
                }
                let at = at.ok_or("Stripe-Signature must have a time: t=")?;
                signed.prefix = format!("{at}.");
                signed.at = Some(seconds(at)?);
            }
        }
        Ok(signed)
    }

    /// Whether it was signed a moment ago.
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        self.at.is_none_or(|at| at.abs_diff(now) <= TOLERANCE)
    }

    /// Whether it is by this key, and of this body.
    pub(super) fn is_by(&self, key: &Key, body: &[u8]) -> bool {
        match key {
            Key::Shared(secret) => {
                let mut mac =
                    Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes any length");
                mac.update(self.prefix.as_bytes());
                mac.update(body);
                self.macs
                    .iter()
                    .any(|given| mac.clone().verify_slice(given).is_ok())
            }
            Key::Public(key) => {
                let content = [self.prefix.as_bytes(), body].concat();
                let key = UnparsedPublicKey::new(&ED25519, key);
                self.signatures
                    .iter()
                    .any(|given| key.verify(&content, given).is_ok())
            }
        }
    }
}

/// The delivery as Stripe names it, in the body.
pub(super) fn id_in(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Event {
        id: String,
    }
    let event: Event = serde_json::from_slice(body).ok()?;
    Some(event.id)
}

fn seconds(text: &str) -> Result<u64, &'static str> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = text.parse().ok().filter(|_| digits);
    parsed.ok_or("the time of a signature must be in seconds since 1970")
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok();
    rest.is_empty()
        .then(|| pairs.iter().map(pair).collect())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const AT: u64 = 1_614_265_330;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let one = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        all.iter().map(one).collect()
    }

    fn standard(signature: &str) -> HeaderMap {
        headers(&[
            (ID, "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            (TIMESTAMP, "1614265330"),
            (SIGNATURE, signature),
        ])
    }

    fn read(scheme: Scheme, headers: &HeaderMap) -> Result<Signed, &'static str> {
        let name = HeaderName::from_static("x-hub-signature-256");
        Signed::read(scheme, headers, &name)
    }

    /// The published vectors, the private key's by its public half.
    #[test]
    fn standard_webhooks_are_known_by_either_kind_of_key() {
        const V1: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        const V1A: &str = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";
        let shared = Key::parse(Scheme::StandardWebhooks, SECRET).unwrap();
        let private = "6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
        let public = BASE64_STANDARD.encode(&BASE64_STANDARD.decode(private).unwrap()[32..]);
        let public = Key::parse(Scheme::StandardWebhooks, &format!("whpk_{public}")).unwrap();
        for (given, by_shared, by_public) in [
            (V1.to_owned(), true, false),
            (V1A.to_owned(), false, true),
            (format!("v1,AAAA {V1}"), true, false),
            (format!("v2,?? {V1A} {V1}"), true, true),
            (V1.replace("v1,", "v1a,"), false, false),
            ("v1,".to_owned(), false, false),
            (String::new(), false, false),
        ] {
            let signed = read(Scheme::StandardWebhooks, &standard(&given)).unwrap();
            assert_eq!(signed.is_by(&shared, BODY), by_shared, "{given}");
            assert_eq!(signed.is_by(&public, BODY), by_public, "{given}");
            assert!(!signed.is_by(&shared, b"{}") && !signed.is_by(&public, b"{}"));
            assert_eq!(signed.id.as_deref(), Some("msg_p5jXN8AQM9LWM0D4loKWxJek"));
            for (now, fresh) in [
                (AT, true),
                (AT + 300, true),
                (AT - 300, true),
                (AT + 301, false),
                (AT - 301, false),
                (0, false),
            ] {
                assert_eq!(signed.is_fresh(now), fresh, "{now}");
            }
        }
        for wrong in ["", "-1", "+5", "1614265330.5", "99999999999999999999"] {
            let mut headers = standard(V1);
            headers.insert(TIMESTAMP, wrong.parse().unwrap());
            assert!(read(Scheme::StandardWebhooks, &headers).is_err(), "{wrong}");
        }
        let mut dotted = standard(V1);
        dotted.insert(ID, "msg.1614265330".parse().unwrap());
        assert!(read(Scheme::StandardWebhooks, &dotted).is_err());
        assert!(read(Scheme::StandardWebhooks, &HeaderMap::new()).is_err());
    }

    /// The example of GitHub's documentation.
    #[test]
    fn githubs_signature_is_known() {
        let key = Key::parse(Scheme::GitHub, "It's a Secret to Everybody").unwrap();
        let mac = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        for (given, good) in [
            (format!("sha256={mac}"), true),
            (format!("sha256={}", mac.to_uppercase()), true),
            (format!("sha256={}", mac.replace('7', "8")), false),
            (format!("sha256={}", &mac[..62]), false),
        ] {
            let signed = read(Scheme::GitHub, &headers(&[("x-hub-signature-256", &given)]));
            let signed = signed.unwrap();
            assert_eq!(signed.is_by(&key, b"Hello, World!"), good, "{given}");
            assert!(!signed.is_by(&key, b"Hello, World"));
        }
        for wrong in [mac, "sha256=7", "sha256=xx", "sha1=75"] {
            let headers = headers(&[("x-hub-signature-256", wrong)]);
            assert!(read(Scheme::GitHub, &headers).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stripes_signature_has_a_time() {
        let key = Key::parse(Scheme::Stripe, "whsec_test").unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(b"whsec_test").unwrap();
        mac.update(b"1614265330.");
        mac.update(BODY);
        let mac = mac.finalize().into_bytes();
        let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let of = |given: &str| read(Scheme::Stripe, &headers(&[(STRIPE, given)]));
        let good = of(&format!("t=1614265330,v1=00,v1={mac},v0=ff")).unwrap();
        assert!(good.is_by(&key, BODY) && good.is_fresh(AT) && !good.is_fresh(AT + 301));
        let late = of(&format!("t=1614265331,v1={mac}")).unwrap();
        assert!(!late.is_by(&key, BODY), "the time is signed, too");
        assert!(of(&format!("v1={mac}")).is_err() && of("t=x,v1=00").is_err());
        assert_eq!(
            id_in(br#"{"id": "evt_1", "x": [1]}"#).as_deref(),
            Some("evt_1")
        );
        assert_eq!(id_in(b"[]"), None);
    }

    #[test]
    fn a_secret_that_is_none_is_refused_without_being_shown() {
        for wrong in [
            "",
            "s3cret",
            "whsec_s3cret",
            "whsec_AAAA",
            "whpk_AAAA",
            "whsk_AAAA",
        ] {
            let error = Key::parse(Scheme::StandardWebhooks, wrong).err().unwrap();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
