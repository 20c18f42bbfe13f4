//! What holds for an endpoint over all relays: pauses, waits, the rate, the breaker.
//!
//! Each is a short transaction of its own on the endpoint's row, never part of a settle.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{
    BreakerState, Error, Mandate, Parameter, Store, sql,
    types::{self},
};
use crate::limit::{Breaker, Counts, Rate};

impl Store {
    /// No relay claims for this endpoint for so long.
    pub async fn put_off(&self, endpoint: &str, wait: Duration) -> Result<(), Error> {
        let seconds = wait.as_secs_f64();
        self.call(
            sql::PUT_OFF,
            &[(&endpoint, Type::TEXT), (&seconds, Type::FLOAT8)],
        )
        .await
        .map(drop)
    }

    /// Takes up to `want` tokens of an endpoint's rate limit, after bringing `back` some that were not used. Returns how many,
    /// and how long until the next one is there.
    pub async fn take_tokens(
        &self,
        endpoint: &str,
        rate: &Rate,
        want: i32,
        back: i32,
    ) -> Result<(i32, Duration), Error> {
        let parameters: [Parameter<'_>; 5] = [
            (&endpoint, Type::TEXT),
            (&rate.per_second, Type::FLOAT8),
            (&rate.burst, Type::FLOAT8),
            (&want, Type::INT4),
            (&back, Type::INT4),
        ];
        let row = self.one(sql::TAKE_TOKENS, &parameters).await?;
        let next = row.get::<_, Option<f64>>("next_in").unwrap_or(1.0);
        Ok((row.get("taken"), types::duration(next)))
    }

    /// Tells an endpoint's breaker what this relay saw. Returns how it stands, and for how long it stays open.
    pub async fn report(
        &self,
        endpoint: &str,
        counts: Counts,
        breaker: &Breaker,
    ) -> Result<(BreakerState, Option<Duration>), Error> {
        let minimum = i32::try_from(breaker.minimum).unwrap_or(i32::MAX);
        let [window, pause, cap] =
            [breaker.window, breaker.pause, breaker.cap].map(|d| d.as_secs_f64());
        let parameters: [Parameter<'_>; 8] = [
            (&endpoint, Type::TEXT),
            (&counts.successes, Type::FLOAT8),
            (&counts.failures, Type::FLOAT8),
            (&breaker.ratio, Type::FLOAT8),
            (&minimum, Type::INT4),
            (&window, Type::FLOAT8),
            (&pause, Type::FLOAT8),
            (&cap, Type::FLOAT8),
        ];
        let row = self.one(sql::REPORT, &parameters).await?;
        let state = row
            .get::<_, Option<&str>>("state")
            .map_or(BreakerState::Closed, BreakerState::read);
        Ok((
            state,
            row.get::<_, Option<f64>>("open_for").map(types::duration),
        ))
    }

    /// Stops deliveries to an endpoint, for all relays. Returns whether it was running; `None`: there is no such endpoint.
    pub async fn pause(&self, endpoint: &str, mandate: Mandate<'_>) -> Result<Option<bool>, Error> {
        let row = self
            .one(
                sql::PAUSE,
                &[
                    (&endpoint, Type::TEXT),
                    (&mandate.why, Type::TEXT),
                    (&mandate.by, Type::TEXT),
                ],
            )
            .await?;
        Ok(row.get("changed"))
    }

    /// Lets deliveries to an endpoint go on. Returns whether it was paused; `None`: there is no such endpoint.
    pub async fn resume(
        &self,
        endpoint: &str,
        mandate: Mandate<'_>,
    ) -> Result<Option<bool>, Error> {
        let parameters: [Parameter<'_>; 3] = [
            (&endpoint, Type::TEXT),
            (&mandate.why, Type::TEXT),
            (&mandate.by, Type::TEXT),
        ];
        Ok(self.one(sql::RESUME, &parameters).await?.get("changed"))
    }
}
