-- What the database's clock says, and up to when each of these schedules has fired; one row at least.
-- $1 names text[].
SELECT to_json(now()) #>> '{}' AS now, s.name, to_json(s.fired_at) #>> '{}' AS fired_at
  FROM (SELECT 1) one
  LEFT JOIN outbox.schedules s ON s.name = ANY ($1)
