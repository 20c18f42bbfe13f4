-- Makes rows for schedules that were never seen: they fire from now on.
-- $1 names text[].
INSERT INTO outbox.schedules (name) SELECT n FROM unnest($1::text[]) n ORDER BY n ON CONFLICT DO NOTHING
