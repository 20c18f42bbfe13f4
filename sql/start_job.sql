-- Begins a replay or a discard of many messages. See functions/start_job.sql.
-- $1 verb text, $2 source text; the filter: $3 topic text, $4 endpoint text, $5 key text, $6 reason text, $7 status int, $8 error text, $9 since and $10 until text: a time, or a
-- length of time that is subtracted from now (`ago 90 s`, `2h`);
-- $11 under new keys boolean, $12 rate float8, $13 why text, $14 by whom text (NULL = the database's user), $15 unattended
-- boolean. Returns the job.
SELECT outbox.start_job($1, $2, $3, $4, $5, $6, $7, $8,
                        CASE WHEN starts_with($9, 'ago ') THEN now() - substr($9, 5)::interval
                            WHEN $9 ~ '^[0-9]+ *[a-z]' THEN now() - $9::interval ELSE $9::timestamptz END,
                        CASE WHEN starts_with($10, 'ago ') THEN now() - substr($10, 5)::interval
                            WHEN $10 ~ '^[0-9]+ *[a-z]' THEN now() - $10::interval ELSE $10::timestamptz END,
                        $11, $12, $13, coalesce($14, current_user), $15) AS job
