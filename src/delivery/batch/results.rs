//! What an answer says of each message of its request: a 207, or any 2xx with a document such as
//!
//! ```json
//! {"results": [{"id": "0b54…", "status": 422, "error": "no such order", "retry_after": 30}]}
//! ```
//!
//! Each message is then settled by its own status, as if that had been the answer to it alone. Nothing is taken for
//! delivered that the document does not say so of: a message without a result is tried again, and so is the whole batch
//! where a document can't be read.

use std::collections::HashMap;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Answered;
use crate::{
    delivery::{
        answer::{excerpt, status_line},
        classify,
    },
    message::{Class, Delivery, Outcome},
};

/// The one member of a document that counts, as it is written.
const NAME: &[u8] = b"\"results\"";

/// The top of a document.
#[derive(Deserialize)]
struct Top<'a> {
    #[serde(borrow)]
    results: Option<&'a RawValue>,
}

/// One result. What is of another type than it should be is as good as missing.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    retry_after: Option<&'a RawValue>,
}

/// What a body turned out to be.
enum Document<'a> {
    /// Results.
    Results(Vec<&'a RawValue>),
    /// Something that says nothing of single messages.
    Other,
    /// Results, as it seems, that can't be read.
    Broken,
}

/// Reads `body`, the answer's, of which the end is missing if it was `cut`.
pub(super) fn read(whole: Outcome, body: &[u8], cut: bool, deliveries: &[&Delivery]) -> Answered {
    if whole.class != Class::Success {
        return Answered { whole, each: None };
    }
    let multi = whole.status == Some(StatusCode::MULTI_STATUS.as_u16());
    match document(body, cut) {
        Document::Results(results) => Answered {
            each: Some(each(&whole, &results, deliveries)),
            whole,
        },
        Document::Other if !multi => Answered { whole, each: None },
        Document::Other | Document::Broken => {
            let what = match cut {
                true => "but its body is too long to be read for results",
                false => "but its body is no document with results",
            };
            let whole = lacking(&whole, what);
            Answered { whole, each: None }
        }
    }
}

fn document(body: &[u8], cut: bool) -> Document<'_> {
    // Of an array serde would take the first item for the results.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Document::Other;
    }
    match serde_json::from_slice::<Top<'_>>(body) {
        Ok(top) if !cut => match top.results.map(RawValue::get).map(serde_json::from_str) {
            Some(Ok(results)) => Document::Results(results),
            Some(Err(_)) | None => Document::Other,
        },
        // To take it for a plain success could lose what it refuses.
        _ if body.windows(NAME.len()).any(|part| part == NAME) => Document::Broken,
        _ => Document::Other,
    }
}

fn each(whole: &Outcome, results: &[&RawValue], deliveries: &[&Delivery]) -> Vec<Outcome> {
    let mut by_id: HashMap<Uuid, (&RawValue, Item<'_>)> = HashMap::new();
    for result in results {
        if !result.get().starts_with('{') {
            continue;
        }
        let item = serde_json::from_str::<Item<'_>>(result.get()).ok();
        let id = item.as_ref().and_then(|item| text(item.id?));
        let id = id.and_then(|id| Uuid::try_parse(&id).ok());
        if let (Some(id), Some(item)) = (id, item) {
            by_id.entry(id).or_insert((result, item));
        }
    }
    let outcome = |delivery: &&Delivery| match by_id.get(&delivery.id) {
        Some((result, item)) => one(whole, result, item),
        None => lacking(whole, "but it has no result for this message"),
    };
    deliveries.iter().map(outcome).collect()
}

fn one(whole: &Outcome, result: &RawValue, item: &Item<'_>) -> Outcome {
    let response = excerpt(result.get().as_bytes());
    let status = item.status.and_then(|raw| raw.get().parse::<u16>().ok());
    let Some(status) = status.filter(|status| (200..=599).contains(status)) else {
        return Outcome {
            response,
            ..lacking(whole, "but its result for this message has no status")
        };
    };
    let class = classify::status(status);
    let error = (class != Class::Success).then(|| {
        let mut line = status_line(status);
        if let Some(error) = item.error.and_then(text).filter(|error| !error.is_empty()) {
            line.push_str(": ");
            line.push_str(&error);
        }
        classify::line(&line)
    });
    let retry_after = item.retry_after.filter(|_| class != Class::Success);
    Outcome {
        class,
        status: Some(status),
        error,
        response,
        retry_after: retry_after.and_then(|raw| classify::retry_after(raw.get().as_bytes(), None)),
        duration: whole.duration,
        exchange: None,
        output: None,
        poll: None,
    }
}

/// The outcome where something is missing in an answer that is good otherwise.
fn lacking(whole: &Outcome, what: &str) -> Outcome {
    let line = whole.status.map(status_line).unwrap_or_default();
    Outcome {
        class: Class::Protocol,
        error: Some(classify::line(&format!("{line}, {what}"))),
        ..whole.clone()
    }
}

fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delivery::tests::delivery;

    fn whole(status: u16) -> Outcome {
        Outcome {
            class: classify::status(status),
            status: Some(status),
            error: None,
            response: Some("whole".into()),
            retry_after: None,
            duration: Duration::from_secs(1),
            exchange: None,
            output: None,
            poll: None,
        }
    }

    /// The answer to messages 1 and 2.
    fn answer(status: u16, body: &str, cut: bool) -> Answered {
        let [one, two] = [1, 2].map(|id| Delivery {
            id: Uuid::from_u128(id),
            ..delivery(None)
        });
        read(whole(status), body.as_bytes(), cut, &[&one, &two])
    }

    fn uuid(id: u128) -> String {
        Uuid::from_u128(id).to_string()
    }

    /// What becomes of message 1 by its result, whose id goes without saying.
    fn single(result: &str) -> Outcome {
        let body = format!(r#"{{"results":[{{"id":"{}"{result}}}]}}"#, uuid(1));
        let each = answer(207, &body, false).each.unwrap();
        each.into_iter().next().unwrap()
    }

    #[test]
    fn without_a_document_the_whole_decides() {
        let table = [
            (200, "", false),
            (200, "ok", false),
            (200, "{}", false),
            (200, "[[]]", false),
            (200, r#"{"results": 5}"#, false),
            (200, r#"{"results": null}"#, false),
            (200, r#"{"data": 1"#, true),
            (422, r#"{"results": []}"#, false),
            (503, "", false),
        ];
        for (status, body, cut) in table {
            let answered = answer(status, body, cut);
            assert!(answered.each.is_none(), "{status} {body}");
            assert_eq!(answered.whole.class, classify::status(status), "{body}");
        }
    }

    #[test]
    fn what_can_not_be_read_is_no_success() {
        let no = "HTTP 207 Multi-Status, but its body is no document with results";
        let table = [
            (207, "", false, no),
            (207, "{}", false, no),
            (207, "[[]]", false, no),
            (207, r#"{"results": {}}"#, false, no),
            (207, r#"{"results": ["#, false, no),
            (
                200,
                r#"{"results": [], "results": []}"#,
                false,
                "HTTP 200 OK, but its body is no",
            ),
            (
                200,
                r#"{"results": [{"#,
                true,
                "HTTP 200 OK, but its body is too long",
            ),
        ];
        for (status, body, cut, want) in table {
            let Answered { whole, each } = answer(status, body, cut);
            assert_eq!((each.is_none(), whole.class), (true, Class::Protocol));
            assert_eq!(whole.status, Some(status));
            let error = whole.error.unwrap();
            assert!(error.starts_with(want), "{body}: {error}");
        }
    }

    #[test]
    fn each_message_has_its_own_result() {
        let body = format!(
            r#" {{"n": 1e400, "results": [5, [], {{"id": 5}}, {{"id": "x"}}, {{"id": "{}", "status": 500}},
               {{"id": "{}", "status": 422, "error": "no\nsuch", "more": {{}}}}, {{"id": "{}", "status": 204}},
               {{"id": "{}", "status": 204}}]}}"#,
            uuid(9),
            uuid(2),
            uuid(1).to_uppercase(),
            uuid(2),
        );
        for status in [200, 207] {
            let Answered { whole, each } = answer(status, &body, false);
            assert_eq!(whole.class, Class::Success);
            let [one, two] = each.unwrap().try_into().unwrap();
            assert_eq!(
                (one.class, one.status, one.error),
                (Class::Success, Some(204), None)
            );
            assert_eq!((two.class, two.status), (Class::Rejected, Some(422)));
            let error = two.error.unwrap();
            assert_eq!(error, "HTTP 422 Unprocessable Entity: no such");
            let response = two.response.unwrap();
            assert!(response.starts_with(r#"{"id": ""#) && response.ends_with("{}}"));
            assert_eq!(two.duration, Duration::from_secs(1));
        }
    }

    #[test]
    fn a_message_that_is_not_mentioned_is_tried_again() {
        let body = format!(r#"{{"results": [{{"id": "{}", "status": 200}}]}}"#, uuid(2));
        let [one, two] = answer(200, &body, false).each.unwrap().try_into().unwrap();
        assert_eq!((one.class, two.class), (Class::Protocol, Class::Success));
        let want = "HTTP 200 OK, but it has no result for this message";
        assert_eq!(one.error.as_deref(), Some(want));
        assert_eq!(one.response.as_deref(), Some("whole"));
        assert_eq!(one.status, Some(200));
    }

    #[test]
    fn what_is_no_status_is_tried_again() {
        for status in [
            "0", "199", "600", "-1", "2e2", "200.0", "\"200\"", "null", "99999",
        ] {
            let outcome = single(&format!(r#","status":{status}"#));
            assert_eq!(outcome.class, Class::Protocol, "{status}");
            let want = "HTTP 207 Multi-Status, but its result for this message has no status";
            assert_eq!(outcome.error.as_deref(), Some(want));
            assert!(outcome.response.unwrap().starts_with('{'));
        }
        assert_eq!(single("").class, Class::Protocol);
        assert_eq!(single(r#","status":299"#).class, Class::Success);
        assert_eq!(single(r#","status":599"#).class, Class::Unavailable);
        let outcome = single(r#","status":500,"error":5"#);
        assert_eq!(outcome.class, Class::Unavailable);
    }

    #[test]
    fn a_delay_is_whole_seconds() {
        let delay =
            |text: &str| single(&format!(r#","status":503,"retry_after":{text}"#)).retry_after;
        assert_eq!(delay("30"), Some(Duration::from_secs(30)));
        assert_eq!(delay("0"), Some(Duration::ZERO));
        assert_eq!(delay("99999999999999999999999"), Some(Duration::MAX));
        for text in ["-1", "1.5", "1e30", "\"30\"", "null", "true", "[]"] {
            assert_eq!(delay(text), None, "{text}");
        }
        let outcome = single(r#","status":200,"retry_after":30"#);
        assert_eq!(outcome.retry_after, None);
    }
}
