-- Says what stands between one row and its delivery. For people; it changes nothing and waits for nobody. Private: outbox.why asks it.
--
-- p_deep = of the message that it is behind, say what stands before that, too.
-- Returns endpoint (empty where it is not known), state (the first of what stands in the way; due = nothing does) and why.
CREATE OR REPLACE FUNCTION outbox.obstacles(
    p_id uuid, p_lane text, p_deep boolean, OUT endpoint text, OUT state text, OUT why text
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET intervalstyle = 'postgres'
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    m        record;
    v_to     text[];      -- the endpoints that its lane leads to
    v_leads  text[];
    v_states text[] := '{}';
    v_whys   text[] := '{}';
    v_order  boolean;
    e        outbox.endpoints;
    r        record;
BEGIN
    SELECT m.xmax AS locker, m.* INTO m FROM outbox.messages m WHERE m.id = p_id AND m.endpoint = p_lane;
    IF NOT FOUND THEN RETURN; END IF;
    -- What routes are, only relays know; the one that looked last wrote down where a lane leads, and whether its keys keep their order.
    SELECT bool_or(l.in_order) FILTER (WHERE l.leads_to <> '{}'),
           coalesce((SELECT o.leads_to FROM outbox.lanes o WHERE o.topic = m.topic AND o.endpoint = ''), '{}')
      INTO v_order, v_leads
      FROM outbox.lanes l WHERE l.topic = m.topic;
    v_to := CASE WHEN m.endpoint <> '' THEN ARRAY[m.endpoint]
                 WHEN cardinality(v_leads) = 1 OR m.sent_to IS NULL THEN v_leads
                 ELSE ARRAY[m.sent_to] END;

    -- Whoever holds it, and then whether there is anybody who could.
    SELECT l.leased_at, l.endpoint, p.name, p.beat_at, p.lease_time
      INTO r
      FROM outbox.leases l LEFT JOIN outbox.relays p ON p.relay = l.relay
     WHERE l.topic = m.topic AND l.lane_endpoint = m.endpoint AND m.id = ANY (l.ids)
     ORDER BY l.lease DESC LIMIT 1;
    IF FOUND THEN
        v_to := ARRAY[r.endpoint];
        v_states := v_states || 'leased'::text;
        v_whys := v_whys || CASE
            WHEN r.beat_at IS NULL THEN 'leased by a relay that has ended'
            WHEN r.beat_at + r.lease_time < v_now THEN
                format('leased by relay %s, which has not been heard of for %s: it is due again when another relay has seen that',
                       r.name, date_trunc('second', v_now - r.beat_at))
            ELSE format('leased by relay %s for %s: it is about to be sent or on its way',
                        r.name, date_trunc('second', v_now - r.leased_at)) END;
    ELSE
        IF NOT EXISTS (SELECT FROM outbox.relays p WHERE p.beat_at > v_now - p.lease_time) THEN
            v_states := v_states || 'no_relay'::text;
            v_whys := v_whys || 'no relay is running'::text;
        ELSIF (SELECT bool_and((m.topic, m.endpoint) IN (SELECT u.topic, u.endpoint
                                                           FROM unnest(p.unrouted_topics, p.unrouted_endpoints) AS u (topic, endpoint)))
                 FROM outbox.relays p WHERE p.beat_at > v_now - p.lease_time) THEN
            v_states := v_states || 'no_route'::text;
            v_whys := v_whys || CASE WHEN m.endpoint = '' THEN format('no route for topic %s in any relay that is running', m.topic)
                                     ELSE format('no relay that is running has an endpoint %s for it', m.endpoint) END;
        END IF;
        IF m.expires_at <= v_now THEN
            v_states := v_states || 'expired'::text;
            v_whys := v_whys || format('it expired%s and is about to be a dead letter',
                          CASE WHEN isfinite(m.expires_at) THEN format(' %s ago', date_trunc('second', v_now - m.expires_at)) ELSE '' END);
        END IF;

        -- Its key.
        IF m.key IS NOT NULL THEN
            -- Where nobody has said whether keys keep their order, a key that is held says it.
            SELECT h.id, d.reason INTO r
              FROM unnest(ARRAY['', m.endpoint] || v_to) AS v (lane)
              JOIN outbox.held_keys h ON h.topic = m.topic AND h.lane_endpoint = v.lane AND h.key = m.key
               AND (h.lane_endpoint = m.endpoint OR h.endpoint = '' OR h.endpoint = ANY (v_to))
              LEFT JOIN outbox.dead_letters d ON d.id = h.id AND d.lane_endpoint = h.lane_endpoint
             LIMIT 1;
            IF FOUND AND v_order IS DISTINCT FROM false THEN
                v_states := v_states || 'held'::text;
                v_whys := v_whys || format('its key is held by message %s, which is dead (%s): replay it, discard it, or release the key',
                                           r.id, coalesce(r.reason, 'and its dead letter is gone'));
            ELSIF v_order THEN
                SELECT f.id, f.endpoint AS lane INTO r
                  FROM unnest(ARRAY[m.endpoint] || CASE WHEN m.endpoint <> '' THEN ARRAY[''] ELSE v_to END) AS v (lane)
                  JOIN outbox.messages f ON f.topic = m.topic AND f.endpoint = v.lane AND f.key = m.key AND f.seq < m.seq
                 WHERE f.due_at IS NULL OR f.due_at <= v_now
                    OR f.attempts > 0 OR f.lost > 0 OR f.throttled > 0 OR f.generation > 0
                 ORDER BY f.seq LIMIT 1;
                IF FOUND THEN
                    v_states := v_states || 'behind'::text;
                    v_whys := v_whys || format('it is behind message %s of the same key%s', r.id,
                        CASE WHEN p_deep THEN coalesce(', and of that: ' || (SELECT o.why FROM outbox.obstacles(r.id, r.lane, false) o), '')
                             ELSE '' END);
                END IF;
            END IF;
        END IF;

        -- Its time.
        IF m.due_at > v_now THEN
            IF m.attempts + m.lost + m.throttled > 0 THEN
                v_states := v_states || 'retry'::text;
                v_whys := v_whys || format('the next attempt is in %s: %s made so far%s',
                                           CASE WHEN isfinite(m.due_at) THEN date_trunc('second', m.due_at - v_now)::text ELSE m.due_at::text END,
                                           m.attempts + m.lost + m.throttled, coalesce(', the last one: ' || m.last_error, ''));
            ELSE
                v_states := v_states || 'scheduled'::text;
                v_whys := v_whys || format('it is scheduled for %s', m.due_at);
            END IF;
        END IF;

        -- Where it goes.
        FOR e IN SELECT * FROM outbox.endpoints p WHERE p.endpoint = ANY (v_to) ORDER BY p.endpoint LOOP
            IF e.paused_at IS NOT NULL THEN
                v_states := v_states || 'paused'::text;
                v_whys := v_whys || format('endpoint %s was paused by %s %s ago: %s', e.endpoint, coalesce(e.paused_by, '?'),
                                           date_trunc('second', v_now - e.paused_at), coalesce(e.pause_reason, 'no reason given'));
            END IF;
            IF e.breaker = 'open' AND e.breaker_until > v_now THEN
                v_states := v_states || 'open'::text;
                v_whys := v_whys || format('the breaker of endpoint %s is open for another %s', e.endpoint,
                                           date_trunc('second', e.breaker_until - v_now));
            ELSIF e.breaker <> 'closed' THEN
                v_states := v_states || 'open'::text;
                v_whys := v_whys || format('endpoint %s failed, and gets a few messages at a time to see how it does', e.endpoint);
            END IF;
            IF e.not_before > v_now THEN
                v_states := v_states || 'not_before'::text;
                v_whys := v_whys || format('endpoint %s asked to be left alone for another %s', e.endpoint,
                                           date_trunc('second', e.not_before - v_now));
            END IF;
            IF e.saturated_at > v_now - interval '3 seconds' THEN
                v_states := v_states || 'saturated'::text;
                v_whys := v_whys || format('endpoint %s has as many messages on their way as it may have from all relays together: %s (max_in_flight)',
                                           e.endpoint, e.saturated_with);
            END IF;
            IF e.tokens < 1 AND e.tokens_at > v_now - interval '2 seconds' THEN
                v_states := v_states || 'throttled'::text;
                v_whys := v_whys || format('the rate limit of endpoint %s is used up just now', e.endpoint);
            END IF;
        END LOOP;
    END IF;

    -- Who keeps a row locked that is needed: one who has done so for longer than a claim takes.
    FOR r IN
        SELECT c.what, a.pid, a.usename, a.application_name, v_now - a.xact_start AS since
          FROM (SELECT 'the message' AS what, m.locker
                UNION ALL
                SELECT format('endpoint %s', p.endpoint), p.xmax FROM outbox.endpoints p WHERE p.endpoint = ANY (v_to)
                UNION ALL
                SELECT 'its lane', l.xmax FROM outbox.lanes l WHERE l.topic = m.topic AND l.endpoint = m.endpoint) c
          JOIN pg_catalog.pg_locks k ON k.locktype = 'transactionid' AND k.granted AND k.mode = 'ExclusiveLock'
           AND k.transactionid = c.locker
          JOIN pg_catalog.pg_stat_activity a ON a.pid = k.pid
         WHERE a.xact_start < v_now - interval '1 second'
    LOOP
        v_states := v_states || 'locked'::text;
        v_whys := v_whys || format('the row of %s is locked by process %s (%s, user %s)%s', r.what, r.pid,
                                   coalesce(nullif(r.application_name, ''), 'no application name'), r.usename,
                                   coalesce(' for ' || date_trunc('second', r.since), ''));
    END LOOP;

    endpoint := array_to_string(v_to, ', ');
    IF cardinality(v_states) = 0 THEN
        SELECT count(*) AS older INTO r
          FROM (SELECT FROM outbox.messages o
                 WHERE o.topic = m.topic AND o.endpoint = m.endpoint AND o.due_at IS NULL AND o.seq < m.seq
                 ORDER BY o.seq DESC LIMIT 10000) o;
        v_states := ARRAY['due'];
        v_whys := ARRAY[format('it is due, and goes as soon as there is room%s',
            CASE WHEN r.older > 0 THEN format(': %s%s older ones of its topic are pending', r.older,
                                              CASE WHEN r.older = 10000 THEN ' or more' ELSE '' END) ELSE '' END)];
    END IF;
    state := v_states[1];
    why := array_to_string(v_whys, '; ');
END
$$;
COMMENT ON FUNCTION outbox.obstacles IS 'Private. Says what stands between one row and its delivery.';
