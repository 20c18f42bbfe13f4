//! Orders, retries and limits.

use super::*;
use crate::limit::{Breaker, Limits, Rate};

#[test]
fn a_route_can_keep_the_order_of_a_key() {
    use crate::route::{OnDead, Order};
    let table = [
        ("", Order::None),
        ("order = \"none\"", Order::None),
        ("order = \"key\"", Order::Key(OnDead::Hold)),
        (
            "order = \"key\"\non_dead = \"hold\"",
            Order::Key(OnDead::Hold),
        ),
        (
            "order = \"key\"\non_dead = \"continue\"",
            Order::Key(OnDead::Continue),
        ),
    ];
    for (keys, want) in table {
        let text = format!(
            "[[endpoints]]\nname = \"a\"\nurl = \"http://h\"\n[[routes]]\ntopic = \"t\"\nto = [\"a\"]\n{keys}\n"
        );
        let env = [("DATABASE_URL".to_owned(), "postgres://h/d".to_owned())].into();
        let config = parse("relay.toml", &text, &env, "host").unwrap();
        assert_eq!(config.routes.of("t").unwrap().order, want, "{keys}");
    }
}

/// The configuration of one endpoint, with these lines in it and these in `[defaults]`.
fn endpoint(own: &str, defaults: &str) -> Result<delivery::Endpoint, String> {
    let text = format!(
        "[defaults]\n{defaults}\n[[endpoints]]\nname = \"a\"\nurl = \"http://h\"\n{own}\n[[routes]]\ntopic = \"t\"\nto = [\"a\"]\n"
    );
    let config = read(&text, &[("DATABASE_URL", "postgres://h/d")])
        .map_err(|problems| problems.to_string())?;
    Ok(config.endpoints.into_iter().next().unwrap())
}

#[test]
fn the_kinds_of_backoff() {
    let table = [
        (
            "retry.jitter = \"decorrelated\"",
            retry::Backoff::Decorrelated {
                base: seconds(1),
                cap: seconds(3600),
            },
        ),
        (
            "retry.delays = [\"5s\", \"1m\"]",
            retry::Backoff::Fixed {
                delays: vec![seconds(5), seconds(60)],
            },
        ),
        ("", retry::Backoff::default()),
    ];
    for (keys, want) in table {
        assert_eq!(endpoint(keys, "").unwrap().retry.backoff, want, "{keys}");
        assert_eq!(endpoint("", keys).unwrap().retry.backoff, want, "{keys}");
    }
    let mistakes = [
        ("retry.delays = []", "must hold one duration at least"),
        ("retry.delays = [\"5s\", 7]", "expected a list of durations"),
        ("retry.delays = [\"5\"]", "unit"),
        (
            "retry.delays = [\"5s\"]\nretry.cap = \"1m\"",
            "means nothing beside delays",
        ),
        (
            "retry.jitter = \"none\"",
            "expected \"full\" or \"decorrelated\"",
        ),
        (
            "retry.jitter = \"decorrelated\"\nretry.factor = 2.0",
            "means nothing with jitter",
        ),
    ];
    for (keys, want) in mistakes {
        let error = endpoint(keys, "").unwrap_err();
        assert!(error.contains(want), "{keys}: {error}");
    }
}

#[test]
fn statuses_and_errors_can_have_their_own_action() {
    use crate::{message::Class, retry::Action};
    let own = "[endpoints.statuses]\n404 = \"dead\"\n409 = \"success\"\ntimeout = \"dead\"";
    let actions = endpoint(own, "statuses.404 = \"retry\"\nstatuses.5xx = \"pause\"")
        .unwrap()
        .retry
        .actions;
    assert_eq!(
        actions.statuses,
        [(404, Action::Dead), (409, Action::Success)].into()
    );
    assert_eq!(actions.hundreds, [(5, Action::Pause)].into());
    assert_eq!(actions.classes, [(Class::Timeout, Action::Dead)].into());
    let mistakes = [
        (
            "statuses.404 = \"ded\"",
            "expected one of \"success\", \"retry\", \"dead\", \"pause\", found \"ded\"",
        ),
        ("statuses.404 = 1", "expected one of"),
        ("statuses.99 = \"dead\"", "is no status (200 to 599)"),
        ("statuses.6xx = \"dead\"", "is no status"),
        ("statuses.timeuot = \"dead\"", "no error (dns, connect"),
        ("statuses = \"dead\"", "expected a table"),
    ];
    for (keys, want) in mistakes {
        let error = endpoint(keys, "").unwrap_err();
        assert!(error.contains(want), "{keys}: {error}");
    }
}

#[test]
fn limits_over_all_relays() {
    let default = endpoint("", "").unwrap().limits;
    assert_eq!(
        default,
        Limits {
            breaker: Some(Breaker::default()),
            ..Limits::default()
        }
    );
    let own = "max_in_flight = 10\nrate = \"600/m\"\nburst = 20\nbreaker.enabled = false";
    for limits in [endpoint(own, ""), endpoint("", own)].map(|endpoint| endpoint.unwrap().limits) {
        assert_eq!(limits.max_in_flight, Some(10));
        assert_eq!(
            limits.rate,
            Some(Rate {
                per_second: 10.0,
                burst: 20.0
            })
        );
        assert_eq!(limits.breaker, None);
    }
    assert_eq!(
        endpoint("rate = \"0.5/s\"", "").unwrap().limits.rate,
        Some(Rate {
            per_second: 0.5,
            burst: 1.0
        })
    );
    let breaker = endpoint("breaker = { ratio = 0.9, minimum = 5, pause = \"1s\" }", "")
        .unwrap()
        .limits
        .breaker;
    let want = Breaker {
        ratio: 0.9,
        minimum: 5,
        pause: seconds(1),
        ..Breaker::default()
    };
    assert_eq!(breaker, Some(want));
    let mistakes = [
        ("rate = 5", "expected a rate such as"),
        ("rate = \"5\"", "expected a rate such as"),
        ("rate = \"-5/s\"", "expected a rate such as"),
        ("rate = \"5/d\"", "expected a rate such as"),
        ("burst = 5", "means something only with rate"),
        ("max_in_flight = 0", "must be from 1"),
        ("max_in_flight = \"5\"", "expected a whole number"),
        ("breaker.enabled = \"no\"", "expected true or false"),
        ("breaker.pause = \"1h\"", "is longer than any may be"),
        ("breaker.ratio = 1.5", "must be from 0.01 to 1"),
    ];
    for (keys, want) in mistakes {
        let error = endpoint(keys, "").unwrap_err();
        assert!(error.contains(want), "{keys}: {error}");
    }
}
