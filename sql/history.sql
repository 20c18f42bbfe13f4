-- Searches the history, a page at a time. See functions/history.sql.
-- $1 id uuid, $2 topic text, $3 endpoint text, $4 key text, $5 outcome text, $6 settlement text, $7 status int, $8 error text, $9 relay
-- text, $10 failures only boolean, $11 slower than so many seconds float8, $12 number of the attempt int, $13 since and $14 until text: a time,
-- or a length of time that is subtracted from now (`ago 90 s`, `2h`); $15 place of the last row of the page before json, $16 rows int.
-- Returns one JSON object for each.
SELECT row_to_json(h)::text AS row
  FROM outbox.history($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                      CASE WHEN starts_with($13, 'ago ') THEN now() - substr($13, 5)::interval
                            WHEN $13 ~ '^[0-9]+ *[a-z]' THEN now() - $13::interval ELSE $13::timestamptz END,
                      CASE WHEN starts_with($14, 'ago ') THEN now() - substr($14, 5)::interval
                            WHEN $14 ~ '^[0-9]+ *[a-z]' THEN now() - $14::interval ELSE $14::timestamptz END,
                      $15, $16) h
