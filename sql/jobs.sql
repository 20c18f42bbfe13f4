-- The jobs, the newest first: $1 only this one bigint (NULL = all), $2 at most int. Returns one JSON object for each.
SELECT row_to_json(j)::text AS row
  FROM outbox.jobs j
 WHERE $1::bigint IS NULL OR j.job = $1
 ORDER BY j.job DESC
 LIMIT $2::integer
