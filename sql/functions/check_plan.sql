-- Whether this is a plan of a saga: true, or an error that says what is wrong and where. NULL is none yet, and right.
--
-- A plan is an array of 1 to 50 steps. A step has name, to (the endpoint), do (a path that is added to the endpoint's URL) and may have
-- undo (a path), pivot (once it is done there is no way back), timeout (seconds), retry and undo_retry (names of retry policies of the
-- configuration), on_exhausted (park or compensate), async (202 means: not yet) and lapse (seconds until the same is sent again then).
-- A constraint calls it, so it reads no table, and the application's role may run it.
CREATE OR REPLACE FUNCTION outbox.check_plan(p_steps jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_step  jsonb;
    v_at    integer := 0;
    v_name  text;
    v_names text[] := '{}';
    v_pivot text;       -- the step that is one
    v_wrong text;       -- what is, in this step
    r       record;
BEGIN
    IF p_steps IS NULL THEN RETURN true; END IF;
    IF jsonb_typeof(p_steps) <> 'array' OR jsonb_array_length(p_steps) NOT BETWEEN 1 AND 50 THEN
        RAISE EXCEPTION 'steps: an array of 1 to 50 steps' USING ERRCODE = 'check_violation';
    END IF;
    FOR v_step IN SELECT s.step FROM jsonb_array_elements(p_steps) AS s (step) LOOP
        IF jsonb_typeof(v_step) <> 'object' THEN
            RAISE EXCEPTION 'steps[%]: an object with name, to and do', v_at USING ERRCODE = 'check_violation';
        END IF;
        v_wrong := NULL;
        FOR r IN SELECT m.member, jsonb_typeof(v_step -> m.member) AS type, v_step ->> m.member AS value
                   FROM unnest(ARRAY['name', 'to', 'do']) AS m (member)
                 UNION
                 SELECT m.member, jsonb_typeof(v_step -> m.member), v_step ->> m.member
                   FROM jsonb_object_keys(v_step) AS m (member)
                  ORDER BY member
        LOOP
            v_wrong := CASE
                WHEN r.member = 'name' THEN CASE WHEN coalesce(r.type = 'string' AND r.value ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$', false)
                    THEN NULL ELSE '1 to 64 letters, digits, - _ . and a letter or digit first' END
                WHEN r.member IN ('to', 'retry', 'undo_retry') THEN CASE
                    WHEN coalesce(r.type = 'string' AND octet_length(r.value) BETWEEN 1 AND 255, false) THEN NULL
                    WHEN r.member = 'to' THEN 'the name of an endpoint' ELSE 'the name of a retry policy of the configuration' END
                WHEN r.member IN ('do', 'undo') THEN CASE
                    WHEN coalesce(r.type = 'string' AND octet_length(r.value) <= 1000
                                  AND r.value ~ '^(/[A-Za-z0-9._~!$&''()*+,;=:@%-]*)+$'
                                  AND r.value !~ '%(?![0-9A-Fa-f]{2})'
                                  AND regexp_replace(r.value, '%2e', '.', 'gi') !~ '/\.\.?(/|$)', false) THEN NULL
                    ELSE 'a path that begins with /, as it stands in a URL, without . and .. and without a query' END
                WHEN r.member IN ('pivot', 'async') THEN CASE WHEN r.type = 'boolean' THEN NULL ELSE 'true or false' END
                WHEN r.member IN ('timeout', 'lapse') THEN CASE
                    WHEN r.type = 'number' AND r.value::numeric BETWEEN 0.001 AND 31536000 THEN NULL
                    ELSE 'a number of seconds, from 0.001 to 31536000' END
                WHEN r.member = 'on_exhausted' THEN CASE WHEN r.value IN ('park', 'compensate') AND r.type = 'string' THEN NULL
                    ELSE 'park or compensate' END
                ELSE 'there is no such member: name, to, do, undo, pivot, timeout, retry, undo_retry, on_exhausted, async, lapse' END;
            IF v_wrong IS NOT NULL THEN
                RAISE EXCEPTION 'steps[%].%: %', v_at, r.member, v_wrong USING ERRCODE = 'check_violation';
            END IF;
        END LOOP;
        v_name := v_step ->> 'name';
        v_wrong := CASE
            WHEN v_name = ANY (v_names) THEN format('name: an earlier step is called %s, too', v_name)
            WHEN v_pivot IS NOT NULL AND (v_step ->> 'pivot')::boolean THEN format('pivot: there is one already, %s', v_pivot)
            WHEN v_pivot IS NOT NULL AND v_step ? 'undo' THEN format('undo: after the pivot %s there is no way back', v_pivot)
            WHEN v_step ->> 'on_exhausted' = 'compensate' AND (v_pivot IS NOT NULL OR (v_step ->> 'pivot')::boolean AND NOT v_step ? 'undo')
                THEN format('on_exhausted: from the pivot %s on there is no way back', coalesce(v_pivot, v_name))
            WHEN v_step ? 'undo_retry' AND NOT v_step ? 'undo' THEN 'undo_retry: the step has no undo'
            WHEN v_step ? 'lapse' AND NOT coalesce((v_step ->> 'async')::boolean, false) THEN 'lapse: the step is not async' END;
        IF v_wrong IS NOT NULL THEN
            RAISE EXCEPTION 'steps[%].%', v_at, v_wrong USING ERRCODE = 'check_violation';
        END IF;
        v_names := v_names || v_name;
        IF (v_step ->> 'pivot')::boolean THEN v_pivot := v_name; END IF;
        v_at := v_at + 1;
    END LOOP;
    RETURN true;
END
$$;
COMMENT ON FUNCTION outbox.check_plan IS 'Private. Whether this is a plan of a saga.';
