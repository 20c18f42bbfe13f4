-- Inserts the messages of a schedule's fire times: see functions/fire.sql.
-- $1 name, $2 seen text, $3 until text, $4 times text[], $5 ids uuid[], $6 topic, $7 key, $8 type, $9 payload text, $10 headers.
SELECT outbox.fire($1, $2::timestamptz, $3::timestamptz, $4::timestamptz[], $5, $6, $7, $8, $9::json, $10) AS messages
