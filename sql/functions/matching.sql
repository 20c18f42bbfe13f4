-- What a replay or discard of many messages would meet: how many, by where they were to go and why they died. Reads all of them;
-- writes nothing.
--
-- The same parameters as outbox.start_job, and all of them must fit: source = dead or delivered; topic, whole or with a `*` at its
-- end; endpoint; key; reason of the death; HTTP status of the last answer; error = a part of the last error, in upper or lower case;
-- since and until = when it died or was delivered. Of what was delivered several times the last time before `until` counts, and what is
-- dead since does not. Steps of sagas are not meant: what follows from them is their saga's affair.
-- Returns, for each endpoint, topic and reason: messages, bytes of payload, the oldest and the newest.
CREATE OR REPLACE FUNCTION outbox.matching(
    p_source text DEFAULT 'dead', p_topic text DEFAULT NULL, p_endpoint text DEFAULT NULL, p_key text DEFAULT NULL,
    p_reason text DEFAULT NULL, p_status integer DEFAULT NULL, p_error text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL
)
RETURNS TABLE (endpoint text, topic text, reason text, messages bigint, bytes bigint, oldest timestamptz, newest timestamptz)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_until timestamptz := least(p_until, clock_timestamp());
BEGIN
    PERFORM outbox.check_filter(p_source, p_reason, p_status, p_error);
    IF p_source = 'dead' THEN
        RETURN QUERY
        SELECT d.endpoint, d.topic, d.reason, count(*), sum(d.size), min(d.died_at), max(d.died_at)
          FROM outbox.dead_letters d
         WHERE d.died_at >= coalesce(p_since, '-infinity') AND d.died_at < v_until AND d.step IS NULL
           AND outbox.fits(d.topic, d.endpoint, d.key, d.reason, d.status, d.last_error,
                           p_topic, p_endpoint, p_key, p_reason, p_status, p_error)
         GROUP BY d.endpoint, d.topic, d.reason
         ORDER BY count(*) DESC, d.endpoint, d.topic, d.reason;
    ELSE
        RETURN QUERY
        SELECT d.endpoint, d.topic, NULL, count(*), sum(d.size), min(d.delivered_at), max(d.delivered_at)
          FROM outbox.delivered d
         WHERE d.delivered_at >= coalesce(p_since, '-infinity') AND d.delivered_at < v_until AND d.step IS NULL
           AND outbox.fits(d.topic, d.endpoint, d.key, NULL, NULL, NULL,
                           p_topic, p_endpoint, p_key, NULL, NULL, NULL)
           AND (SELECT true FROM outbox.delivered o
                 WHERE o.id = d.id AND o.lane_endpoint = d.lane_endpoint
                   AND (o.generation, o.delivered_at) > (d.generation, d.delivered_at)
                   AND o.delivered_at + interval '0' < v_until
                 LIMIT 1) IS NULL
           AND (SELECT true FROM outbox.dead_letters o WHERE o.id = d.id AND o.lane_endpoint = d.lane_endpoint) IS NULL
         GROUP BY d.endpoint, d.topic
         ORDER BY count(*) DESC, d.endpoint, d.topic;
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.matching IS 'Public. What a replay or discard of many messages would meet: SELECT * FROM outbox.matching(p_endpoint => ''…'').';
