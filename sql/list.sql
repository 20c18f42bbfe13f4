-- Lists messages, a page at a time. See functions/list.sql.
-- $1 state text; the filter: $2 topic text, $3 endpoint text, $4 key text, $5 reason text, $6 status int, $7 error text, $8 since and $9 until text: a time, or a
-- length of time that is subtracted from now (`ago 90 s`, `2h`);
-- $10 place of the last row of the page before json, $11 rows int. Returns one JSON object for each.
SELECT row_to_json(m)::text AS row
  FROM outbox.list($1, $2, $3, $4, $5, $6, $7,
                   CASE WHEN starts_with($8, 'ago ') THEN now() - substr($8, 5)::interval
                            WHEN $8 ~ '^[0-9]+ *[a-z]' THEN now() - $8::interval ELSE $8::timestamptz END,
                   CASE WHEN starts_with($9, 'ago ') THEN now() - substr($9, 5)::interval
                            WHEN $9 ~ '^[0-9]+ *[a-z]' THEN now() - $9::interval ELSE $9::timestamptz END,
                   $10, $11) m
