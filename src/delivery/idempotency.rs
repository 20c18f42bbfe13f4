//! The header by which a receiver knows a delivery that comes a second time.
//!
//! The IETF draft makes its value a string of structured fields, with quotes; a strict parser takes a bare UUID for an
//! error. Many receivers are older and compare bytes or match `[A-Za-z0-9._-]+`, so an endpoint can have it bare, or under
//! another name. Without it receivers still have the message's id.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use crate::message::Delivery;

/// The name in the IETF draft.
pub(super) const NAME: HeaderName = HeaderName::from_static("idempotency-key");

/// How an endpoint is told the key.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How the key is written.
    pub format: Format,
    /// The header's name.
    pub header: HeaderName,
    /// How long the receiver remembers a key; for a warning only.
    pub ttl: Duration,
}

/// How a key is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// In quotes, as the draft wants it.
    #[default]
    String,
    /// The UUID alone.
    Bare,
    /// Not at all.
    None,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            format: Format::default(),
            header: NAME,
            ttl: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// The key of a delivery: the message's id, or where its topic goes to several endpoints a UUID of version 5 (RFC 9562) of the id as its
/// namespace and the endpoint's name, so that a receiver behind two endpoints takes neither for a repetition of the other.
///
/// A message that was sent before its topic got a second endpoint keeps its id as the key: a key must not change between two
/// tries. A step of a saga has one endpoint, and its own id for each phase.
pub(super) fn key(delivery: &Delivery) -> Uuid {
    if delivery.lane_endpoint.is_empty() || delivery.sent_to.is_some() || delivery.step.is_some() {
        delivery.id
    } else {
        Uuid::new_v5(&delivery.id, delivery.lane_endpoint.as_bytes())
    }
}

impl Config {
    /// Adds the header to the request of one message.
    pub(super) fn add(&self, headers: &mut HeaderMap, delivery: &Delivery) {
        let id = key(delivery).hyphenated();
        // A UUID needs no escapes.
        let value = match self.format {
            Format::String => format!("\"{id}\""),
            Format::Bare => id.to_string(),
            Format::None => return,
        };
        let value = HeaderValue::try_from(value).expect("a UUID, in quotes or not");
        headers.insert(self.header.clone(), value);
    }

    /// The key where it stands in a body, so without the forms of a header; `None` where the receiver is not told.
    pub(super) fn in_body(&self, delivery: &Delivery) -> Option<Uuid> {
        match self.format {
            Format::String | Format::Bare => Some(key(delivery)),
            Format::None => None,
        }
    }

    /// What the receiver forgets too early for retries that may go on for `longest`.
    pub(super) fn warning(
        &self,
        longest: Duration,
        show: impl Fn(Duration) -> String,
    ) -> Option<String> {
        let late = longest > self.ttl && self.format != Format::None;
        late.then(|| {
            format!(
                "attempts may go on for {}, the receiver forgets keys after {} (idempotency.ttl): it may take a late one \
                 for a new message",
                show(longest),
                show(self.ttl)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::tests::delivery;

    #[test]
    fn a_key_is_the_id_until_fan_out_gives_each_endpoint_its_own() {
        let id = Uuid::parse_str("6ba7b810-9dad-11d1-80b4-00c04fd430c8").unwrap();
        let mut one = Delivery {
            id,
            ..delivery(None)
        };
        assert_eq!(key(&one), id);
        // The vector that many libraries publish: namespace DNS, name www.example.com.
        one.lane_endpoint = "www.example.com".into();
        let want = "2ed6657d-e927-568b-95e1-2665a8aea6a2";
        assert_eq!(key(&one).to_string(), want);
        one.sent_to = Some("www.example.com".into());
        assert_eq!(key(&one), id);
    }

    proptest! {
        #[test]
        fn each_endpoint_has_a_key_of_its_own_that_never_changes(
            id in any::<u128>(), other in any::<u128>(), one in "[a-z0-9_-]{1,63}", two in "[a-z0-9_-]{1,63}",
            attempts in any::<u32>(), throttled in any::<u32>(),
        ) {
            let row = |id: u128, endpoint: &str| Delivery {
                id: Uuid::from_u128(id),
                lane_endpoint: endpoint.into(),
                ..delivery(None)
            };
            let first = row(id, &one);
            let later = Delivery { attempts, throttled, lost: 1, lease: 9, ..row(id, &one) };
            prop_assert_eq!(key(&first), key(&later), "of every attempt, by whatever relay");
            prop_assert_eq!(key(&row(id, "")), Uuid::from_u128(id));
            prop_assert_ne!(key(&first), Uuid::from_u128(id));
            prop_assert!(one == two || key(&first) != key(&row(id, &two)));
            prop_assert!(id == other || key(&first) != key(&row(other, &one)));

            for (format, quotes) in [(Format::String, 2), (Format::Bare, 0)] {
                let mut headers = HeaderMap::new();
                Config { format, ..Config::default() }.add(&mut headers, &first);
                let value = headers[NAME].to_str().unwrap();
                prop_assert_eq!(value.matches('"').count(), quotes);
                prop_assert_eq!(Uuid::parse_str(value.trim_matches('"')), Ok(key(&first)));
            }
        }
    }
}
