//! What can't be answered or done, and how that is said.
use reqwest::{Method, StatusCode};

use super::{READER, Stage};
use crate::support::{
    client, eventually,
    rows::{SOON, count, insert_one},
};

#[tokio::test]
async fn what_is_wrong_is_said() {
    let stage = Stage::new(1).await;
    let id = stage.dead(1).await[0];
    let (bad, missing) = (StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND);
    for (path, status, detail) in [
        ("/v1/messages", bad, "missing field `state`"),
        (
            "/v1/messages?state=lost",
            bad,
            "pending, dead or delivered, not \"lost\"",
        ),
        (
            "/v1/messages?state=dead&colour=red",
            bad,
            "unknown field `colour`",
        ),
        (
            "/v1/messages?state=pending&status=503",
            bad,
            "what is pending has no reason and no status",
        ),
        (
            "/v1/messages?state=dead&limit=0",
            bad,
            "limit: from 1 to 1000",
        ),
        (
            "/v1/messages?state=dead&after=x",
            bad,
            "after: what the page before calls next",
        ),
        (
            "/v1/messages?state=dead&after=[1]",
            bad,
            "this is not the place of a message that is dead",
        ),
        (
            "/v1/messages?state=dead&since=yesterdayish",
            bad,
            "invalid input syntax for type timestamp",
        ),
        ("/v1/messages/7", bad, "UUID"),
        (
            "/v1/messages/00000000-0000-0000-0000-000000000000",
            missing,
            "no message",
        ),
        (
            "/v1/messages/00000000-0000-0000-0000-000000000000/why",
            missing,
            "no message",
        ),
        (
            "/v1/history?failures=maybe",
            bad,
            "failures: provided string was not `true` or `false`",
        ),
        (
            "/v1/matching?source=pending",
            bad,
            "dead or delivered, not \"pending\"",
        ),
        (
            "/v1/messages?state=dead&reason=rejectd",
            bad,
            "a reason is rejected, attempts,",
        ),
        (
            "/v1/history?outcome=timeuot",
            bad,
            "no outcome is called timeuot",
        ),
        (
            "/v1/history?settlement=died",
            bad,
            "a settlement is delivered,",
        ),
        (
            "/v1/history?slower=1000001",
            bad,
            "from 0 to 1000000 seconds",
        ),
        ("/v1/history?attempt=-1", bad, "attempt: from 0, not -1"),
        ("/v1/jobs/7", missing, "there is no job 7"),
        ("/v1/nothing", missing, "there is nothing here"),
        ("/v1", missing, "there is nothing here"),
        ("/nothing", missing, "there is nothing here"),
    ] {
        stage.fails(Method::GET, path, "", status, detail).await;
    }
    let replay = format!("/v1/messages/{id}/replay");
    for (path, body, status, detail) in [
        (replay.as_str(), "{", bad, "the body: "),
        (
            replay.as_str(),
            "[null, true]",
            bad,
            "the body: a JSON object is expected",
        ),
        (
            replay.as_str(),
            "{\"deliverd\": true}",
            bad,
            "unknown field `deliverd`",
        ),
        (
            replay.as_str(),
            "{\"delivered\": true}",
            missing,
            "was not delivered",
        ),
        (
            "/v1/messages/00000000-0000-0000-0000-000000000000/replay",
            "",
            missing,
            "is not dead",
        ),
        (
            "/v1/messages/00000000-0000-0000-0000-000000000000/cancel",
            "",
            missing,
            "is pending",
        ),
        (
            "/v1/messages/00000000-0000-0000-0000-000000000000/discard",
            "",
            missing,
            "is not dead",
        ),
        (
            "/v1/jobs",
            "{\"verb\": \"replay\"}",
            bad,
            "say which messages",
        ),
        (
            "/v1/jobs",
            "{\"verb\": \"eat\", \"all\": true}",
            bad,
            "replay or discard, not \"eat\"",
        ),
        (
            "/v1/jobs",
            "{\"verb\": \"discard\", \"all\": true, \"rate\": 1}",
            bad,
            "are of a replay",
        ),
        (
            "/v1/jobs",
            "{\"verb\": \"replay\", \"all\": true, \"rate\": 0}",
            bad,
            "the rate must be from 0.001",
        ),
        (
            "/v1/jobs",
            "{\"verb\": \"replay\", \"filter\": {\"colour\": 1}}",
            bad,
            "unknown field `colour`",
        ),
        ("/v1/jobs/7/abort", "", missing, "there is no job 7"),
        (
            "/v1/keys/release",
            "{\"topic\": \"t\"}",
            bad,
            "missing field `key`",
        ),
        (
            "/v1/keys/release",
            "{\"topic\": \"t\", \"key\": \"k\"}",
            missing,
            "no dead message holds",
        ),
        (
            "/v1/endpoints/nobody/pause",
            "",
            missing,
            "no relay ever had an endpoint \"nobody\"",
        ),
        (
            "/v1/status",
            "",
            StatusCode::METHOD_NOT_ALLOWED,
            "another way",
        ),
    ] {
        stage.fails(Method::POST, path, body, status, detail).await;
    }
    let huge = format!("{{\"why\": \"{}\"}}", "x".repeat(3 << 20));
    stage
        .fails(
            Method::POST,
            &replay,
            &huge,
            StatusCode::PAYLOAD_TOO_LARGE,
            "",
        )
        .await;
    assert_eq!(count(&stage.client, "dead_letters").await, 1);
    assert_eq!(count(&stage.client, "jobs").await, 0);
    let id = insert_one(&stage.client, "payload", "'12345678901234567890.10'").await;
    let shown = format!("http://{}/v1/messages/{id}", stage.relay.address);
    let text = async || {
        client()
            .get(&shown)
            .bearer_auth(READER)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    };
    eventually("digits are kept", SOON, async || {
        text().await.contains("12345678901234567890.10")
    })
    .await;
}
