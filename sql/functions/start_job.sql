-- Begins a replay or a discard of many messages. It only writes down what is meant; outbox.run_job does it, piece by piece, and
-- can go on after whatever ended it.
--
-- Parameters: verb = replay or discard; then the filter, see outbox.matching: what dies or is delivered from now on is not meant;
-- new_key = under new ids; rate = messages in a second at most, from 0.001 to 1000000; who and why, for the history; unattended = relays
-- that have an HTTP API see it through.
-- Returns the job's number.
CREATE OR REPLACE FUNCTION outbox.start_job(
    p_verb text, p_source text DEFAULT 'dead', p_topic text DEFAULT NULL, p_endpoint text DEFAULT NULL, p_key text DEFAULT NULL,
    p_reason text DEFAULT NULL, p_status integer DEFAULT NULL, p_error text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL,
    p_new_key boolean DEFAULT false, p_rate double precision DEFAULT NULL,
    p_why text DEFAULT NULL, p_by text DEFAULT current_user, p_unattended boolean DEFAULT false
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_job bigint;
BEGIN
    PERFORM outbox.check_filter(p_source, p_reason, p_status, p_error);
    IF p_verb IS NULL OR p_verb NOT IN ('replay', 'discard') THEN
        RAISE EXCEPTION 'a job is a replay or a discard, not %', p_verb USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_source = 'pending' OR p_verb = 'discard' AND p_source <> 'dead' THEN
        RAISE EXCEPTION 'what is % can not be meant by a %', p_source, p_verb
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Dead letters can be replayed and discarded, what was delivered can be replayed.';
    ELSIF NOT coalesce(p_rate BETWEEN 0.001 AND 1000000, true) THEN
        RAISE EXCEPTION 'the rate must be from 0.001 to 1000000 messages in a second, not %', p_rate
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Who did what to which message stays in the history; this is only for those who watch.
    DELETE FROM outbox.jobs j WHERE j.finished_at < now() - interval '90 days';
    INSERT INTO outbox.jobs (verb, source, topic, endpoint, key, reason, status, error, since, until, cursor_at, new_key, rate,
        why, started_by, unattended)
    VALUES (p_verb, p_source, p_topic, p_endpoint, p_key, p_reason, p_status, p_error, coalesce(p_since, '-infinity'),
            least(p_until, clock_timestamp()), coalesce(p_since, '-infinity'), p_new_key, p_rate, p_why, p_by, p_unattended)
    RETURNING jobs.job INTO v_job;
    RETURN v_job;
END
$$;
COMMENT ON FUNCTION outbox.start_job IS 'Public. Begins a replay or a discard of many messages: outbox.start_job(''replay'', p_endpoint => ''…''), then outbox.run_job.';
