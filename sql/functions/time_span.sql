-- A length of time for a sentence: 90 s, 15 min, 3 h, 2 days.
CREATE OR REPLACE FUNCTION outbox.time_span(p_seconds double precision)
RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
SELECT CASE WHEN p_seconds < 120 THEN format('%s s', round(p_seconds))
            WHEN p_seconds < 7200 THEN format('%s min', floor(p_seconds / 60))
            WHEN p_seconds < 172800 THEN format('%s h', floor(p_seconds / 3600))
            ELSE format('%s days', floor(p_seconds / 86400)) END
$$;
COMMENT ON FUNCTION outbox.time_span IS 'Private. A length of time for a sentence.';
