-- Counts the sagas that a filter means: see functions/matching_sagas.sql.
-- $1 name text, $2 key text, $3 status text, $4 step text, $5 error text, $6 since and $7 until text as in find_sagas.sql. Returns one JSON
-- object for each name, status, step and phase.
SELECT row_to_json(s)::text AS row
  FROM outbox.matching_sagas($1, $2, $3, $4, $5,
                   CASE WHEN starts_with($6, 'ago ') THEN now() - substr($6, 5)::interval
                            WHEN $6 ~ '^[0-9]+ *[a-z]' THEN now() - $6::interval ELSE $6::timestamptz END,
                   CASE WHEN starts_with($7, 'ago ') THEN now() - substr($7, 5)::interval
                            WHEN $7 ~ '^[0-9]+ *[a-z]' THEN now() - $7::interval ELSE $7::timestamptz END) s
