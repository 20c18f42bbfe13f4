//! What there is to do, in the database's words.

use std::time::Duration;

use tokio_postgres::{Row, types::Type};

use super::{Doorbell, Error, Found, Parameter, Store, sql, types};

/// What a skip scan saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The lanes that hold rows.
    pub lanes: Vec<Found>,
    /// How the doorbell stands, if that was asked for.
    pub bell: Option<Doorbell>,
    /// Until a saga can begin, or is to go back; `None` if there is none that will.
    pub sagas: Option<Duration>,
}

impl Store {
    /// Lists the lanes that hold rows.
    pub async fn discover(&self) -> Result<Vec<Found>, Error> {
        self.look_around(false, &[]).await.map(|seen| seen.lanes)
    }

    /// The same, and how the doorbell stands, if that is asked for; and when a saga can begin (those without a plan of their own
    /// where one of these `plans` is theirs) or is to go back.
    pub async fn look_around(&self, doorbell: bool, plans: &[&str]) -> Result<Seen, Error> {
        let parameters: [Parameter<'_>; 2] = [(&doorbell, Type::BOOL), (&plans, Type::TEXT_ARRAY)];
        let rows = self.call(sql::DISCOVER, &parameters).await?;
        let (lanes, others): (Vec<&Row>, Vec<&Row>) = rows
            .iter()
            .partition(|row| row.get::<_, Option<&str>>("topic").is_some());
        let (bells, sagas): (Vec<&Row>, Vec<&Row>) = others
            .into_iter()
            .partition(|row| row.get::<_, Option<bool>>("hangs").is_some());
        Ok(Seen {
            lanes: lanes.into_iter().map(Found::from).collect(),
            bell: bells.first().map(|row| Doorbell::from(*row)),
            sagas: sagas.first().map(|row| types::duration(row.get("due_in"))),
        })
    }
}
