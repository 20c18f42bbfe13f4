//! Messages whose time is over and that no claim meets.

use std::time::SystemTime;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Error, Parameter, Store, sql};
use crate::message::Lane;

/// A place in the order of the times at which messages expire; the default is before all of them. Opaque: the database's
/// clock, only ever given back to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Place(Option<SystemTime>, i64);

/// Some messages whose time is over.
#[derive(Clone, Debug, Default)]
pub struct Expired {
    /// By lane.
    pub lanes: Vec<(Lane, Vec<Uuid>)>,
    /// Where the next ones are looked for; `None` = these were the last.
    pub next: Option<Place>,
}

/// What became of them.
#[derive(Clone, Debug)]
pub struct Expiry {
    /// So many are dead letters now. The others are leased, wait for the head of their key or for a relay that can deliver
    /// them, or somebody claims there.
    pub dead: i32,
    /// The keys of those.
    pub keys: Vec<String>,
    /// Why the history could not be written, if so.
    pub history_error: Option<String>,
}

impl Store {
    /// The first messages after a place whose time is over, `limit` at most.
    pub async fn expired(&self, after: Place, limit: i32) -> Result<Expired, Error> {
        let Place(time, seq) = after;
        let parameters: [Parameter<'_>; 3] = [
            (&time, Type::TIMESTAMPTZ),
            (&seq, Type::INT8),
            (&limit, Type::INT4),
        ];
        let rows = self.call(sql::EXPIRED, &parameters).await?;
        let last = rows.last().filter(|row| row.get("more"));
        Ok(Expired {
            next: last.map(|row| Place(row.get("expires_at"), row.get("seq"))),
            lanes: rows
                .iter()
                .map(|row| {
                    let (topic, endpoint) = (row.get("topic"), row.get("endpoint"));
                    (Lane { topic, endpoint }, row.get("ids"))
                })
                .collect(),
        })
    }

    /// Gives up those of these messages of a lane whose time is over. `endpoint` is where its route leads, empty before
    /// fan-out, `None` where `relay` can't deliver them; with `hold` a head that dies closes its key. Can be sent again.
    pub async fn expire(
        &self,
        relay: Uuid,
        name: &str,
        lane: &Lane,
        endpoint: Option<&str>,
        hold: bool,
        ids: &[Uuid],
    ) -> Result<Expiry, Error> {
        let parameters: [Parameter<'_>; 7] = [
            (&relay, Type::UUID),
            (&lane.topic, Type::TEXT),
            (&lane.endpoint, Type::TEXT),
            (&endpoint, Type::TEXT),
            (&hold, Type::BOOL),
            (&ids, Type::UUID_ARRAY),
            (&name, Type::TEXT),
        ];
        let row = self.one(sql::EXPIRE, &parameters).await?;
        Ok(Expiry {
            dead: row.get("dead"),
            keys: row.get("keys"),
            history_error: row.get("history_error"),
        })
    }
}
