-- Inserts the messages of a schedule's fire times, once over all relays.
--
-- Guard: the schedule's row, whose lock one relay has and the others do not wait for, must still say what the caller saw: of those who
-- see the same fire times one inserts, and the others find another time there. Messages and that time are one transaction. A fire time
-- that this clock has not reached is nobody's: the caller may have seen another server's.
--
-- Parameters: the schedule; the time that the caller saw; up to where all is decided now; the fire times that get a message, with its id,
-- in step; then what all these messages have. Returns how many there are; NULL: nothing was done.
CREATE OR REPLACE FUNCTION outbox.fire(
    p_name text, p_seen timestamptz, p_until timestamptz, p_times timestamptz[], p_ids uuid[],
    p_topic text, p_key text, p_type text, p_payload json, p_headers jsonb
) RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET timezone = 'UTC'
AS $$
DECLARE
    v_messages integer;
BEGIN
    PERFORM FROM outbox.schedules s WHERE s.name = p_name AND s.fired_at = p_seen FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR p_until > now() OR p_until <= p_seen THEN
        RETURN NULL;
    END IF;
    UPDATE outbox.schedules s SET fired_at = p_until WHERE s.name = p_name;
    INSERT INTO outbox.messages (id, topic, key, type, payload, headers)
    SELECT u.id, p_topic, p_key, p_type, p_payload,
           p_headers || jsonb_build_object('Schedule-Name', p_name, 'Schedule-Time', to_char(u.at, 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
      FROM unnest(p_ids, p_times) AS u (id, at)
     ORDER BY u.at
        ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_messages = ROW_COUNT;
    RETURN v_messages;
END
$$;
COMMENT ON FUNCTION outbox.fire IS 'Private. Inserts the messages of a schedule''s fire times, once over all relays.';
