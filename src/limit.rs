//! What an endpoint may be asked to bear, over all relays together: pure.
//!
//! The limits themselves are kept in the endpoint's row, where every relay meets them; here are their settings, and what a
//! relay counts for the circuit breaker until it reports.

use std::time::Duration;

use crate::message::{Class, Outcome};

/// The limits of one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Messages on their way at once, over all relays; `None` = as many as the relays' own `concurrency` allows.
    pub max_in_flight: Option<u32>,
    /// Requests in a time, over all relays.
    pub rate: Option<Rate>,
    /// When to stop asking an endpoint that fails; `None` = never.
    pub breaker: Option<Breaker>,
}

impl Default for Limits {
    fn default() -> Self {
        let (max_in_flight, rate, breaker) = (None, None, Some(Breaker::default()));
        Limits {
            max_in_flight,
            rate,
            breaker,
        }
    }
}

/// So many requests in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second; more than zero.
    pub per_second: f64,
    /// So many may come at once after a pause; at least 1.
    pub burst: f64,
}

/// When an endpoint is left alone because it fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breaker {
    /// It opens when this share of the requests failed, from 0 to 1.
    pub ratio: f64,
    /// ... of so many at least.
    pub minimum: u32,
    /// ... in this time; older ones fade away.
    pub window: Duration,
    /// For how long it stays open the first time; each time in a row doubles it.
    pub pause: Duration,
    /// It never stays open for longer.
    pub cap: Duration,
    /// So many requests try whether it works again.
    pub probes: u32,
    /// After it closed, the number in flight grows for so long.
    pub ramp: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker {
            ratio: 0.5,
            minimum: 20,
            window: Duration::from_secs(30),
            pause: Duration::from_secs(5),
            cap: Duration::from_secs(5 * 60),
            probes: 2,
            ramp: Duration::from_secs(10),
        }
    }
}

/// What an outcome says about the endpoint's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answered, be it with a 4xx.
    Good,
    /// It can't be reached, or answered with a 5xx.
    Bad,
    /// It had no part in it.
    Neither,
}

impl Health {
    /// Reads it from an outcome. A 429 is the answer of a receiver that lives.
    pub fn of(outcome: &Outcome) -> Health {
        match outcome.class {
            Class::Unavailable if outcome.status.is_some_and(|status| status >= 500) => Health::Bad,
            // It was not asked: its address is guarded, or there was no token for it.
            Class::Misconfigured | Class::Unavailable if outcome.status.is_none() => {
                Health::Neither
            }
            Class::Success
            | Class::Redirect
            | Class::Unavailable
            | Class::Misconfigured
            | Class::Rejected
            | Class::Gone => Health::Good,
            Class::Dns
            | Class::Connect
            | Class::ConnectTimeout
            | Class::Tls
            | Class::Reset
            | Class::Protocol
            | Class::Timeout => Health::Bad,
            Class::Proxy
            | Class::Unsendable
            | Class::Aborted
            | Class::Exhausted
            | Class::Panicked => Health::Neither,
        }
    }
}

/// Successes and failures that nobody was told of yet. They fade as those in the endpoint's row do, or the successes of an
/// hour ago would hide that everything fails now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Faded successes.
    pub successes: f64,
    /// Faded failures.
    pub failures: f64,
}

impl Counts {
    /// Adds one.
    pub fn add(&mut self, health: Health) {
        match health {
            Health::Good => self.successes += 1.0,
            Health::Bad => self.failures += 1.0,
            Health::Neither => {}
        }
    }

    /// Lets them fade by `elapsed`: half of them in half a window.
    pub fn fade(&mut self, elapsed: Duration, window: Duration) {
        let half = (window / 2).as_secs_f64().max(f64::EPSILON);
        let keep = 0.5_f64.powf(elapsed.as_secs_f64() / half);
        self.successes *= keep;
        self.failures *= keep;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(class: Class, status: Option<u16>) -> Outcome {
        let duration = Duration::ZERO;
        Outcome {
            exchange: None,
            output: None,
            poll: None,
            class,
            status,
            error: None,
            response: None,
            retry_after: None,
            duration,
        }
    }

    #[test]
    fn an_answer_of_a_living_receiver_is_good() {
        let table = [
            (Class::Success, Some(200), Health::Good),
            (Class::Rejected, Some(422), Health::Good),
            (Class::Misconfigured, Some(404), Health::Good),
            (Class::Misconfigured, None, Health::Neither),
            (Class::Unavailable, None, Health::Neither),
            (Class::Unavailable, Some(429), Health::Good),
            (Class::Unavailable, Some(409), Health::Good),
            (Class::Unavailable, Some(503), Health::Bad),
            (Class::Timeout, None, Health::Bad),
            (Class::Timeout, Some(200), Health::Bad),
            (Class::Connect, None, Health::Bad),
            (Class::Proxy, Some(407), Health::Neither),
            (Class::Aborted, None, Health::Neither),
            (Class::Exhausted, None, Health::Neither),
        ];
        for (class, status, want) in table {
            assert_eq!(
                Health::of(&outcome(class, status)),
                want,
                "{class} {status:?}"
            );
        }
    }

    #[test]
    fn counts_fade() {
        let window = Duration::from_secs(30);
        let mut counts = Counts {
            successes: 1000.0,
            failures: 8.0,
        };
        counts.fade(window / 2, window);
        assert_eq!((counts.successes, counts.failures), (500.0, 4.0));
        counts.fade(Duration::from_secs(3600), window);
        assert!(counts.successes < 1e-9);
        counts.add(Health::Bad);
        assert!(counts.failures > 0.99);
    }
}
