-- Lists sagas, a page at a time. See functions/find_sagas.sql.
-- The filter: $1 name text, $2 key text, $3 status text, $4 step text, $5 error text, $6 since and $7 until text: a time, or a length of
-- time that is subtracted from now (`ago 90 s`, `2h`); $8 place of the last row of the page before json, $9 rows int. Returns one JSON
-- object for each.
SELECT row_to_json(s)::text AS row
  FROM outbox.find_sagas($1, $2, $3, $4, $5,
                   CASE WHEN starts_with($6, 'ago ') THEN now() - substr($6, 5)::interval
                            WHEN $6 ~ '^[0-9]+ *[a-z]' THEN now() - $6::interval ELSE $6::timestamptz END,
                   CASE WHEN starts_with($7, 'ago ') THEN now() - substr($7, 5)::interval
                            WHEN $7 ~ '^[0-9]+ *[a-z]' THEN now() - $7::interval ELSE $7::timestamptz END,
                   $8, $9) s
