//! Fan-out: one row per endpoint of messages whose topic goes to several; and what is left that goes nowhere.

use std::collections::BTreeSet;

use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{
    Error, Store, sql,
    types::{ClaimState, Claimed, Floors, Registration, duration},
};
use crate::message::Lane;

/// Which rows become one per endpoint.
#[derive(Clone, Debug)]
pub struct Expand<'a> {
    /// Those of this topic's own lane.
    pub topic: &'a str,
    /// The endpoints that it goes to.
    pub to: &'a [&'a str],
    /// All endpoints that the relay knows: a row that was tried at one of them stays with it.
    pub known: &'a [&'a str],
    /// Rows at most.
    pub limit: i32,
    /// Bytes of payload at most, before they are multiplied; one row is taken whatever its size.
    pub bytes: i64,
    /// Where to start.
    pub floors: Floors,
}

/// What became of them.
#[derive(Clone, Debug)]
pub struct Expanded {
    /// What was seen of the lane, as by a claim; there is never a lease.
    pub seen: Claimed,
    /// The endpoints that got rows.
    pub endpoints: Vec<String>,
}

impl Store {
    /// Makes one row per endpoint of due rows. After an error it can be done again, from the same floors.
    pub async fn expand(&self, me: &Registration, expand: &Expand<'_>) -> Result<Expanded, Error> {
        let floors = &expand.floors;
        let row = self
            .one(
                sql::EXPAND,
                &[
                    (&me.relay, Type::UUID),
                    (&me.session, Type::INT4),
                    (&me.epoch, Type::UUID),
                    (&expand.topic, Type::TEXT),
                    (&expand.to, Type::TEXT_ARRAY),
                    (&expand.known, Type::TEXT_ARRAY),
                    (&expand.limit, Type::INT4),
                    (&expand.bytes, Type::INT8),
                    (&floors.ready, Type::INT8),
                    (&floors.waiting.map(|(due, _)| due), Type::TIMESTAMPTZ),
                    (&floors.waiting.map_or(0, |(_, seq)| seq), Type::INT8),
                    (&floors.lease, Type::INT8),
                ],
            )
            .await?;
        read(&row)
    }
}

impl Store {
    /// Says which lanes a relay found and can't deliver.
    pub async fn set_unrouted(&self, relay: Uuid, lanes: &BTreeSet<Lane>) -> Result<(), Error> {
        let topics: Vec<&str> = lanes.iter().map(|lane| lane.topic.as_str()).collect();
        let endpoints: Vec<&str> = lanes.iter().map(|lane| lane.endpoint.as_str()).collect();
        self.call(
            sql::SET_UNROUTED,
            &[
                (&relay, Type::UUID),
                (&topics, Type::TEXT_ARRAY),
                (&endpoints, Type::TEXT_ARRAY),
            ],
        )
        .await
        .map(drop)
    }
}

fn read(row: &Row) -> Result<Expanded, Error> {
    let state = ClaimState::read(row.get("state"), "expand")?;
    Ok(Expanded {
        seen: Claimed {
            deliveries: Vec::new(),
            state,
            brought: state == ClaimState::Claimed,
            lease: None,
            floors: Floors::read(row),
            dry: row.get::<_, Option<bool>>("dry").unwrap_or(false),
            next_due: row.get::<_, Option<f64>>("next_due_in").map(duration),
            left_keys: Vec::new(),
            others: row.get::<_, Option<bool>>("others").unwrap_or(false),
            breaker: None,
            endpoint_floor: None,
        },
        endpoints: row.get("endpoints"),
    })
}
