-- What a replay or discard of many messages would meet: how many, by where they were to go and why they died. Reads all of them;
-- writes nothing.
--
-- The same parameters as outbox.start_job, and all of them must fit: source = dead or delivered; topic, whole or with a `*` at its
-- end; endpoint; key; reason of the death; HTTP status of the last answer; error = a part of the last error, in upper or lower case;
-- since and until = when it died or was delivered.
-- Returns, for each endpoint, topic and reason: messages, bytes of payload, the oldest and the newest.
CREATE OR REPLACE FUNCTION outbox.matching(
    p_source text DEFAULT 'dead', p_topic text DEFAULT NULL, p_endpoint text DEFAULT NULL, p_key text DEFAULT NULL,
    p_reason text DEFAULT NULL, p_status integer DEFAULT NULL, p_error text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL
)
RETURNS TABLE (endpoint text, topic text, reason text, messages bigint, bytes bigint, oldest timestamptz, newest timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT d.endpoint, d.topic, d.reason, count(*), sum(d.size), min(d.at), max(d.at)
      FROM (SELECT d.endpoint, d.topic, d.reason, d.size, d.died_at AS at
              FROM outbox.dead_letters d
             WHERE p_source = 'dead'
               AND d.died_at >= coalesce(p_since, '-infinity') AND d.died_at < coalesce(p_until, 'infinity')
               AND outbox.fits(d.topic, d.endpoint, d.key, d.reason, d.status, d.last_error,
                               p_topic, p_endpoint, p_key, p_reason, p_status, p_error)
            UNION ALL
            SELECT d.endpoint, d.topic, NULL, d.size, d.delivered_at
              FROM outbox.delivered d
             WHERE p_source = 'delivered'
               AND d.delivered_at >= coalesce(p_since, '-infinity') AND d.delivered_at < coalesce(p_until, 'infinity')
               AND outbox.fits(d.topic, d.endpoint, d.key, NULL, NULL, NULL,
                               p_topic, p_endpoint, p_key, p_reason, p_status, p_error)) d
     GROUP BY d.endpoint, d.topic, d.reason
     ORDER BY count(*) DESC, d.endpoint, d.topic, d.reason;
$$;
COMMENT ON FUNCTION outbox.matching IS 'Public. What a replay or discard of many messages would meet: SELECT * FROM outbox.matching(p_endpoint => ''…'').';
