use proptest::prelude::*;
use rand::{SeedableRng, rngs::StdRng};
use uuid::Uuid;

use super::{backoff::MINIMUM, *};

const CLASSES: [Class; 17] = [
    Class::Success,
    Class::Redirect,
    Class::Unavailable,
    Class::Misconfigured,
    Class::Rejected,
    Class::Gone,
    Class::Proxy,
    Class::Dns,
    Class::Connect,
    Class::ConnectTimeout,
    Class::Tls,
    Class::Reset,
    Class::Protocol,
    Class::Timeout,
    Class::Unsendable,
    Class::Aborted,
    Class::Panicked,
];

fn delivery(attempts: u32) -> Delivery {
    Delivery {
        lease: 1,
        lane_endpoint: String::new(),
        id: Uuid::nil(),
        topic: "t".into(),
        key: None,
        kind: None,
        body: None,
        content_type: None,
        headers: Vec::new(),
        seq: 1,
        attempts,
        lost: 0,
        throttled: 0,
        generation: 0,
        sent_to: None,
        step: None,
        created_at: String::new(),
        age: Duration::ZERO,
        expires_in: None,
    }
}

fn outcome(class: Class) -> Outcome {
    Outcome {
        class,
        status: None,
        error: None,
        response: None,
        retry_after: None,
        duration: Duration::ZERO,
        exchange: None,
        output: None,
        poll: None,
    }
}

fn settle(delivery: &Delivery, outcome: &Outcome) -> Settlement {
    Policy::default().settle(delivery, outcome, &mut StdRng::seed_from_u64(7))
}

fn status(class: Class, status: u16) -> Outcome {
    Outcome {
        status: Some(status),
        ..outcome(class)
    }
}

fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

fn full(base: u64, factor: f64, cap: u64) -> Backoff {
    let [base, cap] = [base, cap].map(Duration::from_millis);
    Backoff::Full { base, factor, cap }
}

#[test]
fn each_class_has_its_settlement() {
    let table = [
        (Class::Success, "delivered"),
        (Class::Rejected, "dead"),
        (Class::Unsendable, "dead"),
        (Class::Redirect, "retry"),
        (Class::Unavailable, "retry"),
        (Class::Misconfigured, "retry"),
        (Class::Gone, "put_off"),
        (Class::Proxy, "retry"),
        (Class::Dns, "retry"),
        (Class::Connect, "retry"),
        (Class::ConnectTimeout, "retry"),
        (Class::Tls, "retry"),
        (Class::Reset, "retry"),
        (Class::Protocol, "retry"),
        (Class::Timeout, "retry"),
        (Class::Aborted, "retry"),
        (Class::Exhausted, "put_off"),
        (Class::Panicked, "retry"),
    ];
    for (class, want) in table {
        assert_eq!(
            settle(&delivery(0), &outcome(class)).as_str(),
            want,
            "{class}"
        );
    }
    assert_eq!(
        settle(&delivery(0), &status(Class::Unavailable, 429)).as_str(),
        "put_off"
    );
    assert_eq!(
        Policy::default().action(&outcome(Class::Gone)),
        Action::Pause
    );
}

#[test]
fn exceptions_go_from_the_status_to_its_hundred() {
    let mut policy = Policy::default();
    policy.actions.statuses.insert(409, Action::Success);
    policy.actions.hundreds.insert(4, Action::Dead);
    policy.actions.hundreds.insert(2, Action::Retry);
    policy.actions.classes.insert(Class::Timeout, Action::Dead);
    let table = [
        (status(Class::Unavailable, 409), Action::Success),
        (status(Class::Misconfigured, 404), Action::Dead),
        (status(Class::Unavailable, 429), Action::Dead),
        (status(Class::Unavailable, 503), Action::Retry),
        (status(Class::Success, 204), Action::Retry),
        (outcome(Class::Timeout), Action::Dead),
        // The first line was there, the answer was not.
        (status(Class::Timeout, 409), Action::Dead),
        (status(Class::Reset, 409), Action::Retry),
    ];
    for (outcome, want) in table {
        assert_eq!(
            policy.action(&outcome),
            want,
            "{} {:?}",
            outcome.class,
            outcome.status
        );
    }
}

#[test]
fn the_last_attempt_is_max_attempts() {
    let last = Policy::default().max_attempts - 1;
    assert!(matches!(
        settle(&delivery(last - 1), &outcome(Class::Timeout)),
        Settlement::Retry(_)
    ));
    for attempts in [last, u32::MAX] {
        let dead = Settlement::Dead(Reason::Attempts);
        assert_eq!(settle(&delivery(attempts), &outcome(Class::Timeout)), dead);
    }
    assert_eq!(
        settle(&delivery(last), &outcome(Class::Success)),
        Settlement::Delivered
    );
}

#[test]
fn being_put_off_uses_no_attempt_up_to_a_limit() {
    let policy = Policy {
        max_throttled: 2,
        ..Policy::default()
    };
    let answer = status(Class::Unavailable, 429);
    let settle = |attempts, throttled| {
        let delivery = Delivery {
            throttled,
            ..delivery(attempts)
        };
        policy.settle(&delivery, &answer, &mut rng(1)).as_str()
    };
    let last = policy.max_attempts - 1;
    assert_eq!(
        [settle(0, 0), settle(last, 1), settle(0, 2), settle(last, 2)],
        ["put_off", "put_off", "retry", "dead"]
    );
}

#[test]
fn forty_attempts_are_possible() {
    let policy = Policy {
        max_attempts: 41,
        ..Policy::default()
    };
    let settle = |made| policy.settle(&delivery(made), &outcome(Class::Timeout), &mut rng(1));
    assert_eq!(
        [38, 39, 40].map(|made| settle(made).as_str()),
        ["retry", "retry", "dead"]
    );
}

#[test]
fn age_and_expiry_end_it_after_a_failure_only() {
    let mut old = delivery(3);
    old.age = Policy::default().max_age;
    for class in [Class::Reset, Class::Unavailable] {
        assert_eq!(
            settle(&old, &status(class, 429)),
            Settlement::Dead(Reason::MaxAge)
        );
    }
    assert_eq!(
        settle(&old, &outcome(Class::Success)),
        Settlement::Delivered
    );
    let mut expired = delivery(0);
    expired.expires_in = Some(Duration::ZERO);
    assert_eq!(
        settle(&expired, &outcome(Class::Reset)),
        Settlement::Dead(Reason::Expired)
    );
    assert_eq!(
        settle(&expired, &outcome(Class::Success)),
        Settlement::Delivered
    );
}

#[test]
fn a_retry_after_lengthens_a_delay_up_to_the_cap() {
    let mut hinted = outcome(Class::Unavailable);
    hinted.retry_after = Some(Duration::from_secs(120));
    assert_eq!(
        settle(&delivery(0), &hinted),
        Settlement::Retry(Duration::from_secs(120))
    );
    hinted.retry_after = Some(Duration::MAX);
    assert_eq!(
        settle(&delivery(0), &hinted),
        Settlement::Retry(Duration::from_secs(3600))
    );
}

#[test]
fn a_misconfigured_endpoint_is_left_alone_for_longer() {
    for seed in 0..100 {
        let settlement =
            Policy::default().settle(&delivery(0), &outcome(Class::Misconfigured), &mut rng(seed));
        let Settlement::Retry(delay) = settlement else {
            panic!("{settlement:?}")
        };
        assert!((32.0..=64.0).contains(&delay.as_secs_f64()), "{delay:?}");
    }
}

#[test]
fn the_window_adds_up() {
    let policy = Policy {
        max_attempts: 4,
        backoff: full(1000, 2.0, 3000),
        ..Policy::default()
    };
    let window = policy.window();
    assert_eq!(
        (window.attempts, window.longest, window.capped_from),
        (4, Duration::from_secs(6), Some(3))
    );
    assert!(!window.ended_by_age);
    let policy = Policy {
        max_age: Duration::from_secs(2),
        ..policy
    };
    assert_eq!(policy.window().attempts, 3);
    assert!(policy.window().ended_by_age);
    let delays = [1, 10].map(Duration::from_secs).to_vec();
    let fixed = Policy {
        backoff: Backoff::Fixed { delays },
        ..Policy {
            max_attempts: 4,
            ..Policy::default()
        }
    };
    assert_eq!(
        fixed.window().longest,
        Duration::from_millis(1100 + 11_000 + 11_000)
    );
}

#[test]
fn delays_at_the_cap_are_spread() {
    let backoff = full(1000, 2.0, 3_600_000);
    let mut rng = rng(1);
    let delays: Vec<_> = (0..1000)
        .map(|_| backoff.delay(Uuid::nil(), 40, &mut rng).as_secs())
        .collect();
    let below_half = delays.iter().filter(|&&seconds| seconds < 1800).count();
    assert!((400..600).contains(&below_half), "{below_half}");
}

#[test]
fn a_fixed_list_is_followed_and_its_last_delay_repeated() {
    let delays = [1, 5, 60].map(Duration::from_secs).to_vec();
    let backoff = Backoff::Fixed { delays };
    for (attempt, low) in [(1, 1.0), (2, 5.0), (3, 60.0), (4, 60.0), (u32::MAX, 60.0)] {
        let delay = backoff
            .delay(Uuid::nil(), attempt, &mut rng(u64::from(attempt)))
            .as_secs_f64();
        assert!((low..=low * 1.1).contains(&delay), "{attempt}: {delay}");
    }
}

#[test]
fn fixed_delays_of_rows_that_failed_together_are_spread() {
    let delays = [60, 600].map(Duration::from_secs).to_vec();
    let backoff = Backoff::Fixed { delays };
    // The second of the list and what is repeated of it.
    for attempt in [1, 2, 50] {
        let mut rng = rng(1);
        let low = if attempt == 1 { 60.0 } else { 600.0 };
        let mut parts = [0; 10];
        for _ in 0..1000 {
            let delay = backoff.delay(Uuid::nil(), attempt, &mut rng).as_secs_f64();
            let hundredth = (0..10).find(|part| delay <= low * (1.01 + 0.01 * f64::from(*part)));
            parts[usize::try_from(hundredth.expect("a tenth longer at most")).unwrap()] += 1;
        }
        let even = parts.iter().all(|count| (50..200).contains(count));
        assert!(even, "after attempt {attempt}: {parts:?}");
    }
}

#[test]
fn decorrelated_delays_grow_from_each_other_and_differ_between_messages() {
    let backoff = Backoff::Decorrelated {
        base: Duration::from_secs(1),
        cap: Duration::from_secs(100),
    };
    let row = |id: u128| -> Vec<f64> {
        let id = Uuid::from_u128(id);
        (1..=12)
            .map(|attempt| backoff.delay(id, attempt, &mut rng(0)).as_secs_f64())
            .collect()
    };
    for id in 0..200 {
        let mut before = 1.0;
        for delay in row(id) {
            assert!(
                delay >= 1.0 && delay <= (before * 3.0_f64).min(100.0),
                "{before} {delay}"
            );
            before = delay;
        }
    }
    assert_eq!(row(7), row(7), "the row of a message can be drawn again");
    assert_ne!(row(7), row(8));
}

proptest! {
    #[test]
    fn a_delay_is_never_beyond_the_cap_nor_below_the_minimum(
        base in 1_u64..10_000_000, factor in 1.0_f64..1e6, cap in 1_u64..10_000_000_000, attempt in any::<u32>(),
        seed in any::<u64>(), id in any::<u128>(),
    ) {
        let cap = cap.max(base);
        let [low, high] = [base, cap].map(Duration::from_millis);
        let all = [
            full(base, factor, cap),
            Backoff::Decorrelated { base: low, cap: high },
            Backoff::Fixed { delays: vec![low, high] },
        ];
        for backoff in all {
            let delay = backoff.delay(Uuid::from_u128(id), attempt, &mut rng(seed));
            prop_assert!(delay <= backoff.cap(), "{backoff:?} {delay:?}");
            prop_assert!(delay >= MINIMUM.min(low), "{backoff:?} {delay:?}");
            prop_assert!(backoff.upper(attempt) <= backoff.cap());
        }
    }

    #[test]
    fn whatever_is_answered_the_wait_is_within_the_cap(
        class in prop::sample::select(CLASSES.to_vec()), status in prop::option::of(100_u16..1000),
        retry_after in prop::option::of(any::<Duration>()), attempts in any::<u32>(), throttled in any::<u32>(),
        base in 1_u64..100_000, cap in 1_u64..10_000_000, kind in 0..3, seed in any::<u64>(),
    ) {
        let [base, cap] = [base.min(cap), cap].map(Duration::from_millis);
        let backoff = match kind {
            0 => Backoff::Full { base, factor: 2.0, cap },
            1 => Backoff::Decorrelated { base, cap },
            _ => Backoff::Fixed { delays: vec![cap, base] },
        };
        let policy = Policy { backoff, max_attempts: u32::MAX, max_throttled: u32::MAX, ..Policy::default() };
        let outcome = Outcome { status, retry_after, ..outcome(class) };
        let delivery = Delivery { throttled, ..delivery(attempts) };
        let hint = policy.hint(&outcome);
        prop_assert!(hint <= policy.backoff.cap());
        match policy.settle(&delivery, &outcome, &mut rng(seed)) {
            Settlement::Retry(delay) | Settlement::PutOff(delay) => {
                prop_assert!(delay <= policy.backoff.cap(), "{:?} {delay:?}", policy.backoff);
                prop_assert!(delay >= MINIMUM.min(base), "{:?} {delay:?}", policy.backoff);
                prop_assert!(delay >= hint || class == Class::Aborted, "{hint:?} {delay:?}");
            }
            Settlement::Delivered | Settlement::Dead(_) => {}
            Settlement::Release => prop_assert!(false, "what was tried is not given back"),
        }
    }

    #[test]
    fn a_list_of_any_delays_is_followed_in_its_order(
        delays in prop::collection::vec(0_u64..10_000_000_000, 1..20), attempt in any::<u32>(), seed in any::<u64>(),
    ) {
        let delays: Vec<_> = delays.into_iter().map(Duration::from_millis).collect();
        let position = usize::try_from(attempt.max(1) - 1).unwrap().min(delays.len() - 1);
        let wanted = delays[position];
        let backoff = Backoff::Fixed { delays };
        let delay = backoff.delay(Uuid::nil(), attempt, &mut rng(seed));
        prop_assert!(delay >= wanted && delay <= wanted + wanted / 10);
        prop_assert!(backoff.average(attempt) <= backoff.upper(attempt));
    }
}
