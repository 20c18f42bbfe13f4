-- Inserts a message that somebody sends over HTTP, once for each key of each caller.
--
-- Guard: the unique key (caller, key) of outbox.requests decides who is first. Who comes at the same time waits for the other's commit
-- and gets its answer, so it needs READ COMMITTED: what the other committed is read in a new snapshot. Request and message are one
-- transaction.
--
-- Parameters: the caller; its key (NULL: nothing is remembered); a digest of the request; then the message. It is due in so many seconds,
-- or at a time, or at once. Returns the message's id, and whether it is of an earlier request with this digest (repeated) or of
-- another one (NULL: then nothing of it is told).
CREATE OR REPLACE FUNCTION outbox.accept(
    p_caller text, p_request text, p_digest bytea,
    p_topic text, p_key text, p_type text, p_payload json, p_body bytea, p_content_type text, p_headers jsonb,
    p_in double precision, p_due_at timestamptz, p_expires_at timestamptz,
    OUT id uuid, OUT repeated boolean
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_digest bytea;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'to accept a message READ COMMITTED is needed, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    repeated := false;
    id := gen_random_uuid();
    WHILE p_request IS NOT NULL LOOP
        INSERT INTO outbox.requests (caller, key, digest, id) VALUES (p_caller, p_request, p_digest, accept.id)
            ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        SELECT r.id, r.digest INTO id, v_digest FROM outbox.requests r WHERE r.caller = p_caller AND r.key = p_request;
        IF FOUND THEN
            IF v_digest = p_digest THEN
                repeated := true;
            ELSE
                id := NULL;
                repeated := NULL;
            END IF;
            RETURN;
        END IF;
        -- Forgotten in between: it is a new one.
        id := gen_random_uuid();
    END LOOP;
    INSERT INTO outbox.messages (id, topic, key, type, payload, body, content_type, headers, due_at, expires_at)
    VALUES (accept.id, p_topic, p_key, p_type, p_payload, p_body, p_content_type, p_headers,
            coalesce(now() + make_interval(secs => p_in), p_due_at), p_expires_at);
END
$$;
COMMENT ON FUNCTION outbox.accept IS 'Private. Inserts a message that was sent over HTTP, once for each key of each caller.';
