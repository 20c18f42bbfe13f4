//! Where a request goes: the endpoint's URL, with fields of the row in its path and query.
//!
//! A row chooses a name within a segment or a value within the query, never more: all but letters, digits and `-._~` of a
//! value is percent-encoded, so it can't end a segment, begin a query or change the host; and a segment that would come out
//! as nothing, `.` or `..` is refused, because servers leave those out and end up somewhere else.

use reqwest::{Method, Url};

use crate::message::Delivery;

/// Longer URLs are refused by many servers, with an answer that doesn't say so.
const LONGEST: usize = 8000;

/// The names of the fields, as they stand between braces.
pub const FIELDS: [&str; 4] = ["topic", "key", "type", "id"];

/// The URL of an endpoint.
pub(super) struct Target {
    base: Url,
    /// Segments of the path, where one has a field.
    path: Option<Vec<Vec<Piece>>>,
    /// The query, where it has a field.
    query: Option<Vec<Piece>>,
}

#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Field(&'static str),
}

// === impl Target ===

impl Target {
    pub(super) fn new(url: &Url) -> Target {
        let segments: Vec<_> = url.path().split('/').map(pieces).collect();
        let query = url.query().map(pieces);
        Target {
            base: url.clone(),
            path: segments.iter().any(|s| has_field(s)).then_some(segments),
            query: query.filter(|query| has_field(query)),
        }
    }

    /// A place at the same receiver, or why it is none.
    pub(super) fn at(&self, place: &str) -> Result<Url, String> {
        let url = Url::parse(place).map_err(|error| format!("the step's Location: {error}"))?;
        if url.origin() != self.base.origin() {
            return Err("the step's Location is not at its endpoint any more".into());
        }
        Ok(url)
    }

    /// The URL for a row, or why it has none.
    pub(super) fn of(&self, delivery: &Delivery) -> Result<Url, String> {
        let mut url = self.base.clone();
        if let Some(segments) = &self.path {
            let mut path = Vec::new();
            for segment in segments {
                let text = filled(segment, delivery)?;
                let plain = text.to_ascii_lowercase().replace("%2e", ".");
                if has_field(segment) && matches!(plain.as_str(), "" | "." | "..") {
                    return Err(format!(
                        "the URL's path would have the segment {plain:?}, which servers leave out"
                    ));
                }
                path.push(text);
            }
            url.set_path(&path.join("/"));
        }
        if let Some(query) = &self.query {
            url.set_query(Some(&filled(query, delivery)?));
        }
        if let Some(step) = &delivery.step
            && !step.path.is_empty()
        {
            let path = format!("{}{}", url.path().trim_end_matches('/'), step.path);
            url.set_path(&path);
        }
        let length = url.as_str().len();
        if length > LONGEST {
            return Err(format!(
                "the URL would have {length} bytes, {LONGEST} at most can be sent"
            ));
        }
        Ok(url)
    }
}

/// The fields that a URL has.
pub(super) fn fields(url: &Url) -> Vec<&'static str> {
    let parts = [url.path(), url.query().unwrap_or_default()];
    let pieces = parts.into_iter().flat_map(pieces);
    let field = |piece| match piece {
        Piece::Text(_) => None,
        Piece::Field(field) => Some(field),
    };
    pieces.filter_map(field).collect()
}

/// A request's first line, for people: with the fields as they stand in the configuration, and without the query.
pub(super) fn show(method: &Method, url: &Url) -> String {
    // What follows the path is often a secret, and this may be the log of a deployment.
    let mut shown = url.clone();
    shown.set_query(None);
    let query = if url.query().is_some() { "?…" } else { "" };
    let mut text = format!("{method} {shown}{query}");
    for field in FIELDS {
        text = text.replace(&format!("%7B{field}%7D"), &format!("{{{field}}}"));
    }
    text
}

/// Text and fields. The URL's parser has encoded the braces in the path, in capitals, not those in the query. Braces that
/// the configuration has encoded already are in small letters here, and text.
fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let next = |rest: &str| {
        let forms = FIELDS.iter().flat_map(|&field| {
            [
                (field, format!("%7B{field}%7D")),
                (field, format!("{{{field}}}")),
            ]
        });
        let found = forms.filter_map(|(field, form)| Some((rest.find(&form)?, field, form.len())));
        found.min_by_key(|(start, _, _)| *start)
    };
    while let Some((start, field, length)) = next(rest) {
        if start > 0 {
            pieces.push(Piece::Text(rest[..start].to_owned()));
        }
        pieces.push(Piece::Field(field));
        rest = &rest[start + length..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    pieces
}

fn has_field(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| match piece {
        Piece::Text(_) => false,
        Piece::Field(_) => true,
    })
}

fn filled(pieces: &[Piece], delivery: &Delivery) -> Result<String, String> {
    let id = delivery.id.hyphenated().to_string();
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(fixed) => text.push_str(fixed),
            Piece::Field(field) => {
                let value = match *field {
                    "topic" => Some(&delivery.topic),
                    "key" => delivery.key.as_ref(),
                    "type" => delivery.kind.as_ref(),
                    _ => Some(&id),
                };
                let value = value.ok_or_else(|| {
                    format!("the endpoint's URL has {{{field}}}, and the row has no {field}")
                })?;
                encode(value, &mut text);
            }
        }
    }
    Ok(text)
}

fn encode(value: &str, out: &mut String) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::tests::delivery;

    fn target(url: &str) -> Target {
        Target::new(&url.parse().unwrap())
    }

    fn row(key: Option<&str>) -> Delivery {
        Delivery {
            key: key.map(String::from),
            ..delivery(None)
        }
    }

    fn of(url: &str, key: &str) -> Result<String, String> {
        target(url).of(&row(Some(key))).map(String::from)
    }

    #[test]
    fn fields_are_filled_in() {
        let id = "00000000-0000-0000-0000-000000000007";
        for (url, key, want) in [
            ("http://h", "k", "http://h/"),
            ("http://h/a%20b?c=d", "k", "http://h/a%20b?c=d"),
            ("http://h/{topic}/{key}", "k", "http://h/order.created/k"),
            ("http://h/x-{key}.json", "k", "http://h/x-k.json"),
            ("http://h/{key}{key}/", "k", "http://h/kk/"),
            (
                "http://h/a?k={key}&i={id}",
                "k",
                &format!("http://h/a?k=k&i={id}"),
            ),
            (
                "http://h/{key}?k={key}",
                "a/b?c#d",
                "http://h/a%2Fb%3Fc%23d?k=a%2Fb%3Fc%23d",
            ),
            ("http://h/{key}", "ä %2e\\", "http://h/%C3%A4%20%252e%5C"),
            ("http://h/{key}", "{topic}", "http://h/%7Btopic%7D"),
            ("http://h/{key}", "@evil:80", "http://h/%40evil%3A80"),
            (
                "http://h/{key}",
                "\r\nHost: e",
                "http://h/%0D%0AHost%3A%20e",
            ),
            ("http://h/{key}", "...", "http://h/..."),
            ("http://h/?k={key}", "&x=1;+", "http://h/?k=%26x%3D1%3B%2B"),
            (
                "http://h/%7bkey%7d?%7bkey%7d",
                "k",
                "http://h/%7bkey%7d?%7bkey%7d",
            ),
            ("http://h/?k={key}", "", "http://h/?k="),
            ("http://h/x{key}", "", "http://h/x"),
        ] {
            assert_eq!(of(url, key).as_deref(), Ok(want), "{url} {key:?}");
        }
    }

    #[test]
    fn what_would_lead_elsewhere_is_refused() {
        for (url, key) in [
            ("http://h/a/{key}/b", ""),
            ("http://h/a/{key}/b", "."),
            ("http://h/a/{key}", ".."),
            ("http://h/a/{key}.", "."),
            ("http://h/a/%2E{key}", "."),
        ] {
            let error = of(url, key).unwrap_err();
            assert!(error.contains("which servers leave out"), "{error}");
        }
        let error = of("http://h/{key}", &"x".repeat(LONGEST)).unwrap_err();
        assert_eq!(
            error,
            "the URL would have 8009 bytes, 8000 at most can be sent"
        );
        let error = target("http://h/{key}").of(&row(None)).unwrap_err();
        assert_eq!(
            error,
            "the endpoint's URL has {key}, and the row has no key"
        );
        let error = target("http://h/?t={type}").of(&row(None)).unwrap_err();
        assert_eq!(
            error,
            "the endpoint's URL has {type}, and the row has no type"
        );
    }

    #[test]
    fn a_url_is_shown_as_it_was_written_without_its_query() {
        let url = "http://h/{topic}/a?k={key}".parse().unwrap();
        assert_eq!(show(&Method::PUT, &url), "PUT http://h/{topic}/a?…");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_unreserved_and_can_be_read_back(text in any::<String>()) {
            let mut encoded = String::new();
            encode(&text, &mut encoded);
            let legal = |c: char| c.is_ascii_alphanumeric() || "-._~%".contains(c);
            prop_assert!(encoded.chars().all(legal), "{}", encoded);
            prop_assert_eq!(crate::delivery::tests::decoded(&encoded), text);
        }

        #[test]
        fn no_value_changes_anything_but_its_place(key in any::<String>(), key2 in "[./%\\\\2eE?#@:]{0,6}") {
            for key in [key, key2] {
                let Ok(url) = of("http://u@h:9/a/{key}/b/x{key}?q={key}&r=1", &key) else { continue };
                let url = Url::parse(&url).unwrap();
                prop_assert_eq!(url.host_str(), Some("h"));
                prop_assert_eq!((url.port(), url.username(), url.fragment()), (Some(9), "u", None));
                let segments: Vec<_> = url.path_segments().unwrap().collect();
                prop_assert_eq!((segments.len(), segments[0], segments[2]), (4, "a", "b"));
                let pairs: Vec<_> = url.query_pairs().collect();
                prop_assert_eq!(pairs.len(), 2);
                prop_assert_eq!(&pairs[0].1, &key);
            }
        }
    }
}
