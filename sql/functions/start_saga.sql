-- Starts a saga that somebody wants over HTTP, once for each name and key, and once for each key of a request of each caller.
--
-- Guard: as in outbox.accept for the request's key; the unique (name, key) of outbox.sagas decides for the rest. A start that is
-- repeated is none, if it wants the same: a saga of this name and key with another input is another request.
--
-- Parameters: the caller; its request's key (NULL: nothing is remembered); a digest of the request; then the saga. Its deadline is in so many
-- seconds, or at a time, or there is none. Returns the saga's id; NULL: the key of the request or of the saga was used for
-- something else.
CREATE OR REPLACE FUNCTION outbox.start_saga(
    p_caller text, p_request text, p_digest bytea,
    p_name text, p_key text, p_input json, p_steps jsonb, p_headers jsonb, p_deadline_in double precision, p_deadline_at timestamptz
) RETURNS uuid
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_id     uuid := gen_random_uuid();
    v_digest bytea;
    v_input  text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'to start a saga READ COMMITTED is needed, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    LOOP
        INSERT INTO outbox.sagas (id, name, key, input, steps, headers, deadline_at)
        VALUES (v_id, p_name, p_key, p_input, p_steps, p_headers, coalesce(now() + make_interval(secs => p_deadline_in), p_deadline_at))
            ON CONFLICT (name, key) DO NOTHING;
        EXIT WHEN FOUND;
        SELECT s.id, s.input::text INTO v_id, v_input FROM outbox.sagas s WHERE s.name = p_name AND s.key = p_key;
        IF FOUND THEN
            IF v_input IS DISTINCT FROM p_input::text THEN RETURN NULL; END IF;
            EXIT;
        END IF;
        -- Forgotten in between: it is a new one.
        v_id := gen_random_uuid();
    END LOOP;
    WHILE p_request IS NOT NULL LOOP
        INSERT INTO outbox.requests (caller, key, digest, id) VALUES (p_caller, p_request, p_digest, v_id) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        SELECT r.digest INTO v_digest FROM outbox.requests r WHERE r.caller = p_caller AND r.key = p_request AND r.id = v_id;
        IF FOUND AND v_digest = p_digest THEN EXIT; END IF;
        IF EXISTS (SELECT FROM outbox.requests r WHERE r.caller = p_caller AND r.key = p_request) THEN
            -- What was inserted here must not stay.
            RAISE EXCEPTION 'this key was used with another request' USING ERRCODE = 'unique_violation';
        END IF;
    END LOOP;
    RETURN v_id;
END
$$;
COMMENT ON FUNCTION outbox.start_saga IS 'Private. Starts a saga that somebody wants over HTTP.';
