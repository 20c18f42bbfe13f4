-- What is wrong now: one row for each kind and subject of an alert. It only reads, and what it reads is bounded.
--
-- Parameters, each NULL = this kind is not looked for: window = seconds that failures and deaths count for; failure_ratio = of the attempts at an
-- endpoint, if there were failure_minimum; dead_letters = so many that died; oldest_due = seconds that a message has been due, of an
-- endpoint that nobody paused; paused = seconds that an endpoint has been; no_route = seconds that a message has waited that no
-- relay which lives can deliver, or a saga for a plan of its name; sagas = so many of a name are parked.
-- Returns kind, subject (the endpoint; of no_route the topic, with the lane's endpoint where it has one), summary, command (what helps),
-- details (the figures).
--
-- Of the failures in the window the newest 10,000 are read, and of all attempts, if any endpoint has failures enough, the newest
-- 50,000: where there were more, rates are compared, each of its own stretch of time.
CREATE OR REPLACE FUNCTION outbox.conditions(
    p_window double precision, p_failure_ratio double precision, p_failure_minimum integer, p_dead_letters integer,
    p_oldest_due double precision, p_paused double precision, p_no_route double precision, p_sagas integer
)
RETURNS TABLE (kind text, subject text, summary text, command text, details jsonb)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now  timestamptz := clock_timestamp();
    v_from timestamptz := v_now - make_interval(secs => p_window);
BEGIN
    IF p_failure_ratio IS NOT NULL THEN
        RETURN QUERY
        WITH failure AS MATERIALIZED (
            SELECT a.endpoint, a.started_at, a.settlement, a.outcome
              FROM outbox.attempts a
             WHERE a.settlement <> 'delivered' AND a.started_at > v_from
               AND a.settlement IN ('retry', 'dead') AND a.outcome NOT IN ('lost', 'expired', 'aborted')
             ORDER BY a.started_at DESC
             LIMIT 10000
        ), failed AS MATERIALIZED (
            SELECT f.endpoint, count(*) AS failures
              FROM failure f
             GROUP BY f.endpoint
            HAVING count(*) >= p_failure_ratio * p_failure_minimum
        ), attempt AS MATERIALIZED (
            SELECT a.endpoint, a.started_at, a.settlement
              FROM outbox.attempts a
             WHERE a.started_at > v_from AND EXISTS (SELECT FROM failed)
             ORDER BY a.started_at DESC
             LIMIT 50000
        ), span AS MATERIALIZED (
            SELECT CASE WHEN f.count < 10000 THEN p_window ELSE greatest(f.seconds, 0.001) END AS of_failures,
                   CASE WHEN a.count < 50000 THEN p_window ELSE greatest(a.seconds, 0.001) END AS of_attempts
              FROM (SELECT count(*), extract(epoch FROM v_now - min(started_at))::double precision AS seconds FROM failure) f
             CROSS JOIN (SELECT count(*), extract(epoch FROM v_now - min(started_at))::double precision AS seconds FROM attempt) a
        ), counted AS (
            SELECT f.endpoint, f.failures, s.successes,
                   f.failures / p.of_failures / (f.failures / p.of_failures + s.successes / p.of_attempts) AS ratio
              FROM failed f
             CROSS JOIN span p
             CROSS JOIN LATERAL (SELECT count(*) AS successes FROM attempt a
                                  WHERE a.endpoint = f.endpoint AND a.settlement = 'delivered') s
        )
        SELECT 'failures', c.endpoint,
               format('endpoint %s: %s %% of the attempts in the last %s failed (%s failures, %s successes)', c.endpoint,
                      round(100 * c.ratio), outbox.time_span(p_window), c.failures, c.successes),
               format('outbox-relay history --failures --endpoint %s', c.endpoint),
               jsonb_build_object('ratio', round(c.ratio::numeric, 3), 'failures', c.failures, 'successes', c.successes,
                                  'window_seconds', p_window)
          FROM counted c
         WHERE c.ratio >= p_failure_ratio AND c.failures + c.successes >= p_failure_minimum;
    END IF;

    IF p_dead_letters IS NOT NULL THEN
        RETURN QUERY
        SELECT 'dead_letters', d.endpoint,
               format('endpoint %s: %s messages were given up in the last %s (%s)', d.endpoint,
                      sum(d.count), outbox.time_span(p_window), string_agg(format('%s %s', d.count, d.reason), ', ' ORDER BY d.count DESC, d.reason)),
               format('outbox-relay list dead --endpoint %s', d.endpoint),
               jsonb_build_object('count', sum(d.count), 'reasons', jsonb_object_agg(d.reason, d.count), 'window_seconds', p_window)
          FROM (SELECT n.endpoint, n.reason, count(*) AS count
                  FROM (SELECT l.endpoint, l.reason
                          FROM outbox.dead_letters l
                         WHERE l.died_at > v_from
                         ORDER BY l.died_at DESC
                         LIMIT 10000) n
                 GROUP BY n.endpoint, n.reason) d
         GROUP BY d.endpoint
        HAVING sum(d.count) >= p_dead_letters;
    END IF;

    IF p_paused IS NOT NULL THEN
        RETURN QUERY
        SELECT 'paused', e.endpoint,
               format('endpoint %s: paused for %s by %s%s', e.endpoint, outbox.time_span(p.seconds), e.paused_by, ': ' || e.pause_reason),
               format('outbox-relay resume %s', e.endpoint),
               jsonb_build_object('paused_seconds', round(p.seconds), 'paused_by', e.paused_by, 'reason', e.pause_reason)
          FROM outbox.endpoints e
         CROSS JOIN LATERAL (SELECT extract(epoch FROM v_now - e.paused_at)::double precision AS seconds) p
         WHERE p.seconds >= p_paused;
    END IF;

    IF p_sagas IS NOT NULL THEN
        RETURN QUERY
        SELECT 'sagas', n.name,
               format('saga %s: %s%s parked and wait for an operator (%s)', n.name, n.count, CASE WHEN n.count = 10000 THEN ' or more' END,
                      string_agg(format('%s at %s', n.of_step, n.step), ', ' ORDER BY n.of_step DESC, n.step)),
               format('outbox-relay saga list --status parked --name %s', n.name),
               jsonb_build_object('count', n.count, 'steps', jsonb_object_agg(n.step, n.of_step))
          FROM (SELECT p.name, coalesce(p.step, 'its undo') AS step, count(*) AS of_step, sum(count(*)) OVER (PARTITION BY p.name) AS count
                  FROM (SELECT s.name, s.failed_step AS step
                          FROM outbox.sagas s
                         WHERE s.status = 'parked'
                         ORDER BY s.created_at, s.id
                         LIMIT 10000) p
                 GROUP BY p.name, p.step) n
         WHERE n.count >= p_sagas
         GROUP BY n.name, n.count;
    END IF;

    IF p_no_route IS NOT NULL THEN
        RETURN QUERY
        WITH RECURSIVE named (name, created_at) AS (
            (SELECT s.name, s.created_at
               FROM outbox.sagas s WHERE s.status = 'new' AND s.steps IS NULL ORDER BY s.name, s.created_at LIMIT 1)
            UNION ALL
            SELECT x.name, x.created_at
              FROM named n
             CROSS JOIN LATERAL (
                    SELECT s.name, s.created_at
                      FROM outbox.sagas s
                     WHERE s.status = 'new' AND s.steps IS NULL AND s.name > n.name
                     ORDER BY s.name, s.created_at
                     LIMIT 1) x
        )
        SELECT 'no_route', 'saga ' || w.name,
               format('saga %s: no relay has a plan of this name, the first has waited for %s', w.name, outbox.time_span(w.seconds)),
               format('outbox-relay saga list --status new --name %s', w.name),
               jsonb_build_object('saga', w.name, 'waiting_seconds', round(w.seconds))
          FROM (SELECT n.name, extract(epoch FROM v_now - n.created_at)::double precision AS seconds FROM named n) w
         WHERE w.seconds >= p_no_route;
    END IF;

    IF p_oldest_due IS NULL AND p_no_route IS NULL THEN
        RETURN;
    END IF;
    -- The skip scan of sql/status_lanes.sql: the first row of each lane, ready and waiting.
    RETURN QUERY
    WITH RECURSIVE ready (topic, endpoint, id, since) AS (
        (SELECT m.topic, m.endpoint, m.id, coalesce(m.replayed_at, m.created_at)
           FROM outbox.messages m
          WHERE m.due_at IS NULL
          ORDER BY m.topic, m.endpoint, m.seq
          LIMIT 1)
        UNION ALL
        SELECT n.topic, n.endpoint, n.id, n.since
          FROM ready r
         CROSS JOIN LATERAL (
                SELECT m.topic, m.endpoint, m.id, coalesce(m.replayed_at, m.created_at) AS since
                  FROM outbox.messages m
                 WHERE m.due_at IS NULL AND (m.topic, m.endpoint) > (r.topic, r.endpoint)
                 ORDER BY m.topic, m.endpoint, m.seq
                 LIMIT 1) n
    ), waiting (topic, endpoint, id, due_at, created_at) AS (
        (SELECT m.topic, m.endpoint, m.id, m.due_at, m.created_at
           FROM outbox.messages m
          WHERE m.due_at IS NOT NULL
          ORDER BY m.topic, m.endpoint, m.due_at, m.seq
          LIMIT 1)
        UNION ALL
        SELECT n.topic, n.endpoint, n.id, n.due_at, n.created_at
          FROM waiting w
         CROSS JOIN LATERAL (
                SELECT m.topic, m.endpoint, m.id, m.due_at, m.created_at
                  FROM outbox.messages m
                 WHERE m.due_at IS NOT NULL AND (m.topic, m.endpoint) > (w.topic, w.endpoint)
                 ORDER BY m.topic, m.endpoint, m.due_at, m.seq
                 LIMIT 1) n
    ), lane AS MATERIALIZED (
        SELECT l.topic, l.endpoint, (array_agg(l.id ORDER BY l.since))[1] AS id, min(l.since) AS since, min(l.created_at) AS created_at,
               coalesce((SELECT bool_and((l.topic, l.endpoint) IN (SELECT u.topic, u.endpoint
                                                                     FROM unnest(r.unrouted_topics, r.unrouted_endpoints) AS u (topic, endpoint)))
                           FROM outbox.relays r
                          WHERE r.beat_at > v_now - r.lease_time), false) AS unrouted
          FROM (SELECT r.topic, r.endpoint, r.id, r.since, r.since AS created_at FROM ready r
                UNION ALL
                SELECT w.topic, w.endpoint, w.id, -- It may have been due for ever when it came.
                       CASE WHEN w.due_at <= v_now THEN greatest(w.due_at, w.created_at) END, w.created_at FROM waiting w) l
         GROUP BY l.topic, l.endpoint
    )
    SELECT 'oldest_due', d.endpoint,
           format('endpoint %s: a message has been due for %s (%s, topic %s)%s', d.endpoint, outbox.time_span(d.seconds), d.id, d.topic,
                  CASE WHEN d.breaker <> 'closed' THEN '; its breaker is ' || replace(d.breaker, '_', ' ') END),
           format('outbox-relay why %s', d.id),
           jsonb_build_object('due_seconds', round(d.seconds), 'id', d.id, 'topic', d.topic)
      FROM (SELECT o.endpoint, (array_agg(l.id ORDER BY l.since))[1] AS id, (array_agg(l.topic ORDER BY l.since))[1] AS topic,
                   extract(epoch FROM v_now - min(l.since))::double precision AS seconds,
                   (SELECT e.breaker FROM outbox.endpoints e WHERE e.endpoint = o.endpoint) AS breaker
              FROM lane l
             CROSS JOIN LATERAL unnest(
                    CASE WHEN l.endpoint <> '' THEN ARRAY[l.endpoint]
                         ELSE (SELECT n.leads_to FROM outbox.lanes n WHERE n.topic = l.topic AND n.endpoint = '') END) AS o (endpoint)
             WHERE NOT l.unrouted AND l.since IS NOT NULL
             GROUP BY o.endpoint) d
     WHERE d.seconds >= p_oldest_due
       AND NOT coalesce((SELECT e.paused_at IS NOT NULL FROM outbox.endpoints e WHERE e.endpoint = d.endpoint), false)
    UNION ALL
    SELECT 'no_route', n.subject,
           format('topic %s: no relay can deliver its messages, the first has waited for %s', n.subject, outbox.time_span(n.seconds)),
           'outbox-relay status',
           jsonb_build_object('topic', n.topic, 'endpoint', nullif(n.endpoint, ''), 'waiting_seconds', round(n.seconds))
      FROM (SELECT l.topic, l.endpoint, CASE WHEN l.endpoint = '' THEN l.topic ELSE format('%s → %s', l.topic, l.endpoint) END AS subject,
                   extract(epoch FROM v_now - l.created_at)::double precision AS seconds
              FROM lane l
             WHERE l.unrouted) n
     WHERE n.seconds >= p_no_route;
END
$$;
COMMENT ON FUNCTION outbox.conditions IS 'Private. What is wrong now; see outbox.watch.';
