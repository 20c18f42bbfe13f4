//! Work of several steps, in the database's words.

use tokio_postgres::types::Type;

use super::{Error, Store, statements as sql};

/// What was done for sagas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tended {
    /// Sagas that have begun.
    pub begun: i32,
    /// Sagas that go back now.
    pub back: i32,
}

impl Store {
    /// Begins sagas that are new, by their own plan or the one of `plans` (an object of arrays of steps by name), and turns back those
    /// that are to go back; of each no more than `limit`.
    pub async fn tend_sagas(&self, plans: &serde_json::Value, limit: i32) -> Result<Tended, Error> {
        let plans = plans.to_string();
        let row = self
            .one(
                sql::TEND_SAGAS,
                &[(&plans, Type::TEXT), (&limit, Type::INT4)],
            )
            .await?;
        Ok(Tended {
            begun: row.get("begun"),
            back: row.get("back"),
        })
    }
}
