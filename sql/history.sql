-- Searches the history, a page at a time. See functions/history.sql.
-- $1 id uuid, $2 topic text, $3 endpoint text, $4 key text, $5 outcome text, $6 settlement text, $7 status int, $8 error text, $9 relay
-- text, $10 failures only boolean, $11 slower than so many seconds float8, $12 since and $13 until text: a time, or a length of
-- time that is subtracted from now (`ago 90 s`, `2h`); $14 place of the last row of the page before json, $15 rows int. Returns one JSON object
-- for each.
SELECT row_to_json(h)::text AS row
  FROM outbox.history($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
                      CASE WHEN starts_with($12, 'ago ') THEN now() - substr($12, 5)::interval
                            WHEN $12 ~ '^[0-9]+ *[a-z]' THEN now() - $12::interval ELSE $12::timestamptz END,
                      CASE WHEN starts_with($13, 'ago ') THEN now() - substr($13, 5)::interval
                            WHEN $13 ~ '^[0-9]+ *[a-z]' THEN now() - $13::interval ELSE $13::timestamptz END,
                      $14, $15) h
