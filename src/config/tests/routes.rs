//! What a route can say of the retries to its endpoints.

use super::*;
use crate::retry::{Action, Backoff, Policy};

/// A route to one endpoint, with these keys in it, in the endpoint and in `[defaults]`. The route's stand on line 11.
fn routed(route: &str, endpoint: &str, defaults: &str) -> Result<Config, Problems> {
    let text = format!(
        "\n[defaults]\n{defaults}\n\n[[endpoints]]\nname = \"a\"\nurl = \"http://h\"\n{endpoint}\n[[routes]]\n\
         topic = \"t\"\n{route}\nto = [\"a\"]\n[[routes]]\ntopic = \"**\"\nto = [\"a\"]\n"
    );
    read(&text, &[DATABASE])
}

fn retry(route: &str, endpoint: &str, defaults: &str) -> Option<Policy> {
    let config = routed(route, endpoint, defaults).unwrap();
    let target = |topic| config.routes.of(topic).unwrap().to[0].retry.clone();
    assert_eq!(target("other"), None, "another route is not concerned");
    target("t")
}

#[test]
fn a_route_replaces_single_keys_of_the_retry_of_its_endpoint() {
    let endpoint = "retry = { cap = \"10m\", max_attempts = 7 }\nstatuses.404 = \"dead\"";
    let defaults = "retry = { base = \"2s\", cap = \"5m\", max_throttled = 9 }";
    assert_eq!(retry("", endpoint, defaults), None);
    let policy = retry("retry = { max_attempts = 1 }", endpoint, defaults).unwrap();
    let backoff = Backoff::Full {
        base: seconds(2),
        factor: 2.0,
        cap: seconds(600),
    };
    assert_eq!((policy.max_attempts, policy.max_throttled), (1, 9));
    assert_eq!(
        (&policy.backoff, policy.max_age),
        (&backoff, seconds(3 * 86_400))
    );
    assert_eq!(policy.actions.statuses, [(404, Action::Dead)].into());
    let config = routed("retry.max_attempts = 1", endpoint, defaults).unwrap();
    assert_eq!(config.endpoints[0].retry.max_attempts, 7, "its own stays");
}

#[test]
fn the_delays_of_a_route_replace_those_of_its_endpoint() {
    let fixed = |delays: &[u64]| Backoff::Fixed {
        delays: delays.iter().copied().map(seconds).collect(),
    };
    let own = "retry.delays = [\"5s\", \"1m\"]";
    for (endpoint, defaults) in [
        ("", ""),
        ("retry.base = \"2s\"", ""),
        ("retry.delays = [\"1s\"]", "retry.factor = 3.0"),
    ] {
        let policy = retry(own, endpoint, defaults).unwrap();
        assert_eq!(policy.backoff, fixed(&[5, 60]), "{endpoint} {defaults}");
    }
    let policy = retry("retry.max_age = \"1h\"", own, "").unwrap();
    assert_eq!(
        (policy.backoff, policy.max_age),
        (fixed(&[5, 60]), seconds(3600))
    );
}

/// Lines of the route, of the endpoint and of `[defaults]`, and what must be said of them.
const MISTAKES: &str = r#"
retry.max_attempts = 0 | | => line 11, routes[0].retry.max_attempts: must be from 1 to 1000, found 0
retry.max_atempts = 1 | | => line 11, routes[0].retry.max_atempts: unknown key; did you mean max_attempts?
retry = 5 | | => line 11, routes[0].retry: expected a table, found the number 5
retry.delays = [] | | => line 11, routes[0].retry.delays: must hold one duration at least
retry.delays = ["5s", 7] | | => line 11, routes[0].retry.delays[1]: expected a list of durations
retry = { delays = ["5s"], base = "1s" } | | => line 11, routes[0].retry.base: means nothing beside delays
retry.base = "1s" | retry.delays = ["5s"] | => line 11, routes[0].retry.base: means nothing beside delays
retry.factor = 2.0 | | retry.jitter = "decorrelated" => line 11, routes[0].retry.factor: means nothing with jitter
retry.base = "10s" | retry.cap = "5s" | => line 11, routes[0].retry.base: the first delay (base = 10s) is longer than any may be (cap = 5s)
retry.cap = "1s" | | retry.base = "2s" => line 11, routes[0].retry.cap: the first delay (base = 2s)
retry.max_attempts = 1 | retry = { base = "2h" } | => line 8, endpoints[0].retry.base: the first delay (base = 2h)
retry.max_attempts = 1 | retry.factor = 0.5 | => line 8, endpoints[0].retry.factor: must be from 1 to 100
retry.statuses = { 404 = "dead" } | | => line 11, routes[0].retry.statuses: unknown key
statuses = { 404 = "dead" } | | => line 11, routes[0].statuses: unknown key
"#;

#[test]
fn what_is_wrong_in_the_retry_of_a_route_is_said_there() {
    for row in MISTAKES.lines().skip(1) {
        let (lines, want) = row.split_once(" => ").unwrap();
        let [route, endpoint, defaults] = lines.split('|').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let problems = routed(route.trim(), endpoint.trim(), defaults.trim()).expect_err(row);
        let shown = problems.list[0].to_string();
        assert!(shown.starts_with(want), "{row}: {shown}");
        assert_eq!(problems.list.len(), 1, "{row}: {problems}");
    }
}

#[test]
fn the_digest_knows_what_each_route_inherits() {
    let digest = |route, endpoint| routed(route, endpoint, "").unwrap().digest;
    let texts = [
        ("", ""),
        ("retry.max_attempts = 1", ""),
        ("retry.max_attempts = 2", ""),
        ("retry.max_attempts = 1", "retry.base = \"2s\""),
    ];
    let digests = texts.map(|(route, endpoint)| digest(route, endpoint));
    for (position, one) in digests.iter().enumerate() {
        assert!(!digests[..position].contains(one), "{:?}", texts[position]);
    }
}
