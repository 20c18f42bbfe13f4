//! Up to when schedules have fired. `sql/functions/fire.sql` says how one relay of several does it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{Error, Store, sql};
use crate::schedule::{Due, Schedule};

impl Store {
    /// What the database's clock says, and up to when those of these schedules have fired that it knows.
    pub async fn schedules(
        &self,
        names: &[&str],
    ) -> Result<(Timestamp, BTreeMap<String, Timestamp>), Error> {
        let rows = self
            .call(sql::SCHEDULES, &[(&names, Type::TEXT_ARRAY)])
            .await?;
        let mut fired = BTreeMap::new();
        let mut now = None;
        for row in &rows {
            now = Some(time(row, "now")?);
            if let Some(name) = row.get("name") {
                fired.insert(name, time(row, "fired_at")?);
            }
        }
        let now = now.ok_or_else(|| unread("returned no row"))?;
        Ok((now, fired))
    }

    /// Writes down that there are these schedules; those that are new fire from now on.
    pub async fn add_schedules(&self, names: &[&str]) -> Result<(), Error> {
        let parameters = [(&names as _, Type::TEXT_ARRAY)];
        self.call(sql::ADD_SCHEDULES, &parameters).await.map(drop)
    }

    /// Inserts the messages of what is due, if nobody has since the schedule was `seen` so. Returns how many; `None`: somebody has.
    pub async fn fire(
        &self,
        schedule: &Schedule,
        seen: Timestamp,
        due: &Due,
    ) -> Result<Option<i32>, Error> {
        let (seen, until) = (seen.to_string(), due.until.to_string());
        let times: Vec<String> = due.times.iter().map(Timestamp::to_string).collect();
        let ids: Vec<Uuid> = due.times.iter().map(|time| schedule.id(*time)).collect();
        let row = self
            .one(
                sql::FIRE,
                &[
                    (&schedule.name, Type::TEXT),
                    (&seen, Type::TEXT),
                    (&until, Type::TEXT),
                    (&times, Type::TEXT_ARRAY),
                    (&ids, Type::UUID_ARRAY),
                    (&schedule.topic, Type::TEXT),
                    (&schedule.key, Type::TEXT),
                    (&schedule.kind, Type::TEXT),
                    (&schedule.payload, Type::TEXT),
                    (&schedule.headers, Type::JSONB),
                ],
            )
            .await?;
        Ok(row.get("messages"))
    }
}

fn time(row: &Row, column: &str) -> Result<Timestamp, Error> {
    let text: &str = row.get(column);
    text.parse().map_err(|_| unread(column))
}

fn unread(what: &str) -> Error {
    Error::Statement {
        statement: sql::SCHEDULES.name,
        message: format!("{what}: not as it should be"),
        state: None,
    }
}
