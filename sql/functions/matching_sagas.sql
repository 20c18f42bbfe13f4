-- How many sagas a filter means, by name, status and the step that they are at: what a verb for many would meet. Reads all of them. The
-- filter is that of outbox.find_sagas.
CREATE OR REPLACE FUNCTION outbox.matching_sagas(
    p_name text DEFAULT NULL, p_key text DEFAULT NULL, p_status text DEFAULT NULL, p_step text DEFAULT NULL, p_error text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL
)
RETURNS TABLE (name text, status text, step text, phase text, sagas bigint)
LANGUAGE sql STABLE AS $$
    SELECT s.name, s.status, s.steps -> s.at_step ->> 'name', s.phase, count(*)
      FROM outbox.sagas s
     WHERE s.created_at >= coalesce(p_since, '-infinity') AND s.created_at < coalesce(p_until, 'infinity')
       AND (p_name IS NULL OR s.name = p_name)
       AND (p_key IS NULL OR s.key = p_key)
       AND (p_status IS NULL OR s.status = p_status)
       AND (p_step IS NULL OR p_step IN (s.failed_step, s.steps -> s.at_step ->> 'name'))
       AND (p_error IS NULL OR position(lower(p_error) IN lower(s.error)) > 0)
     GROUP BY 1, 2, 3, 4
     ORDER BY count(*) DESC, 1, 2, 3, 4;
$$;
COMMENT ON FUNCTION outbox.matching_sagas IS 'Public. How many sagas a filter means: SELECT * FROM outbox.matching_sagas(p_status => ''parked'').';
