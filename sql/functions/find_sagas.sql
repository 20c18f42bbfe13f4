-- Lists sagas, newest first, a page at a time.
--
-- The filter, of which all must fit: name; key; status; step = the one that it is at, or failed at; error = a part of its error, in
-- upper or lower case; since and until = when it was inserted. p_after = the place of the last row of the page before.
-- Returns step and phase that it is at, and place. Never an OFFSET: each page starts at its place in an index; what is parked has one of
-- its own.
CREATE OR REPLACE FUNCTION outbox.find_sagas(
    p_name text DEFAULT NULL, p_key text DEFAULT NULL, p_status text DEFAULT NULL, p_step text DEFAULT NULL, p_error text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL, p_after json DEFAULT NULL, p_limit integer DEFAULT 50
)
RETURNS TABLE (
    id uuid, name text, key text, status text, step text, phase text, failed_step text, error text, generation integer,
    created_at timestamptz, deadline_at timestamptz, finished_at timestamptz, place json
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_at uuid := coalesce((p_after ->> 1)::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
BEGIN
    IF p_status NOT IN ('new', 'running', 'compensating', 'parked', 'succeeded', 'compensated') THEN
        RAISE EXCEPTION 'a saga is new, running, compensating, parked, succeeded or compensated, not %', p_status
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF json_array_length(p_after) <> 2 THEN
        RAISE EXCEPTION 'this is not the place of a saga: %', p_after USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY
    SELECT s.id, s.name, s.key, s.status, s.steps -> s.at_step ->> 'name', s.phase, s.failed_step, s.error, s.generation,
           s.created_at, s.deadline_at, s.finished_at, json_build_array(s.created_at, s.id)
      FROM outbox.sagas s
     WHERE (s.created_at, s.id) < (coalesce((p_after ->> 0)::timestamptz, 'infinity'), v_at)
       AND s.created_at >= coalesce(p_since, '-infinity') AND s.created_at < coalesce(p_until, 'infinity')
       AND (p_name IS NULL OR s.name = p_name)
       AND (p_key IS NULL OR s.key = p_key)
       AND (p_status IS NULL OR s.status = p_status)
       AND (p_step IS NULL OR p_step IN (s.failed_step, s.steps -> s.at_step ->> 'name'))
       AND (p_error IS NULL OR position(lower(p_error) IN lower(s.error)) > 0)
     ORDER BY s.created_at DESC, s.id DESC
     LIMIT p_limit;
END
$$;
COMMENT ON FUNCTION outbox.find_sagas IS 'Public. Lists sagas: SELECT * FROM outbox.find_sagas(p_status => ''parked'').';
