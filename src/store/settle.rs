//! The end of a row's way, in the database's words.

use std::cmp::Reverse;

use tokio::time::Instant;
use tokio_postgres::{Row, types::Type};

use super::{
    Error, Records, Registration, Settle, SettleReport, Store, statements as sql, types::seconds,
};
use crate::message::{Exchange, Lane, Outcome, Settlement};

impl Store {
    /// Settles deliveries of one lane endpoint. Can be sent again: what was settled stays settled.
    pub async fn settle(
        &self,
        me: &Registration,
        name: &str,
        lane_endpoint: &str,
        settles: &[Settle],
        records: Records,
    ) -> Result<SettleReport, Error> {
        let mut sorted: Vec<&Settle> = settles.iter().collect();
        // The first verdict on an id counts: the one under its newest lease, since an older one was given back before.
        sorted.sort_by_key(|settle| (settle.id, Reverse(settle.lease)));
        fn column<'a, T>(sorted: &[&'a Settle], value: impl Fn(&'a Settle) -> T) -> Vec<T> {
            sorted.iter().map(|settle| value(settle)).collect()
        }
        let delay = |settlement: &Settlement| match settlement {
            Settlement::Retry(delay) | Settlement::PutOff(delay) => delay.as_secs_f64(),
            Settlement::Delivered | Settlement::Dead(_) | Settlement::Release => 0.0,
        };
        let reason = |settlement: &Settlement| match settlement {
            Settlement::Dead(reason) => Some(reason.as_str()),
            Settlement::Delivered
            | Settlement::Retry(_)
            | Settlement::PutOff(_)
            | Settlement::Release => None,
        };
        let outcome = column(&sorted, |s| s.outcome.as_ref());
        let of = |read: fn(&Outcome) -> Option<&str>| -> Vec<Option<&str>> {
            outcome
                .iter()
                .map(|outcome| outcome.and_then(read))
                .collect()
        };
        let status: Vec<Option<i32>> = outcome
            .iter()
            .map(|outcome| outcome.and_then(|o| o.status).map(i32::from))
            .collect();
        let duration: Vec<f64> = outcome
            .iter()
            .map(|outcome| outcome.map_or(0.0, |o| o.duration.as_secs_f64()))
            .collect();
        let exchange = column(&sorted, |s| s.outcome.as_ref()?.exchange.as_deref());
        // Mostly there is none, and then nothing is sent for it.
        let some = exchange.iter().any(Option::is_some);
        let exchanges = |read: fn(&Exchange) -> Option<&str>| -> Vec<Option<&str>> {
            let each = exchange.iter().filter(|_| some);
            each.map(|exchange| exchange.and_then(read)).collect()
        };
        let output = column(&sorted, |s| s.outcome.as_ref()?.output.as_deref());
        let some = output.iter().any(Option::is_some);
        let output: Vec<Option<&str>> = output.into_iter().filter(|_| some).collect();
        let poll = column(&sorted, |s| {
            Some(&*s.outcome.as_ref()?.poll.as_ref()?.place)
        });
        let some = poll.iter().any(Option::is_some);
        let poll: Vec<Option<&str>> = poll.into_iter().filter(|_| some).collect();
        let now = Instant::now();
        let row = self
            .one(
                sql::SETTLE,
                &[
                    (&me.relay, Type::UUID),
                    (&name, Type::TEXT),
                    (&lane_endpoint, Type::TEXT),
                    (&column(&sorted, |s| &*s.endpoint), Type::TEXT_ARRAY),
                    (&column(&sorted, |s| s.lease), Type::INT8_ARRAY),
                    (&column(&sorted, |s| s.id), Type::UUID_ARRAY),
                    (&column(&sorted, |s| s.seq), Type::INT8_ARRAY),
                    (&column(&sorted, |s| s.generation), Type::INT4_ARRAY),
                    (
                        &column(&sorted, |s| s.settlement.as_str()),
                        Type::TEXT_ARRAY,
                    ),
                    (
                        &column(&sorted, |s| delay(&s.settlement)),
                        Type::FLOAT8_ARRAY,
                    ),
                    (
                        &column(&sorted, |s| reason(&s.settlement)),
                        Type::TEXT_ARRAY,
                    ),
                    (&column(&sorted, |s| s.hold), Type::BOOL_ARRAY),
                    (&column(&sorted, |s| s.attempt), Type::INT4_ARRAY),
                    (&of(|o| Some(o.class.as_str())), Type::TEXT_ARRAY),
                    (&status, Type::INT4_ARRAY),
                    (&of(|o| o.error.as_deref()), Type::TEXT_ARRAY),
                    (&of(|o| o.response.as_deref()), Type::TEXT_ARRAY),
                    (&duration, Type::FLOAT8_ARRAY),
                    (
                        &column(&sorted, |s| seconds(now, s.started)),
                        Type::FLOAT8_ARRAY,
                    ),
                    (&records.payloads, Type::BOOL),
                    (&records.history.as_str(), Type::TEXT),
                    (&exchanges(|e| Some(&*e.request)), Type::TEXT_ARRAY),
                    (
                        &exchanges(|e| e.response_headers.as_deref()),
                        Type::TEXT_ARRAY,
                    ),
                    (&output, Type::TEXT_ARRAY),
                    (&poll, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        Ok(SettleReport {
            settled: row.get("settled"),
            history_error: row.get("history_error"),
            filled: lanes(&row),
        })
    }
}

/// The lanes of the columns topics and endpoints.
fn lanes(row: &Row) -> Vec<Lane> {
    let column = |name| row.get::<_, Option<Vec<String>>>(name).unwrap_or_default();
    let pairs = column("topics").into_iter().zip(column("endpoints"));
    pairs
        .map(|(topic, endpoint)| Lane { topic, endpoint })
        .collect()
}
