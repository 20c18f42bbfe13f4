-- Does a piece of a job: replays or discards up to p_limit messages, in a transaction of its own, and remembers how far it came.
-- Call it until it says done. Whoever calls it goes on where the last one stopped; two at once do not meet.
--
-- It looks at no more than ten times as many rows, so that a piece stays short where few of many are meant.
-- Messages come in the order in which they died or were delivered, which is that of their keys.
--
-- Returns state (running; busy = another call is at it; done; aborted; missing = there is no such job), done and pending of the
-- job so far, and wait: seconds until its rate lets it go on.
CREATE OR REPLACE FUNCTION outbox.run_job(
    p_job bigint, p_limit integer DEFAULT 500,
    OUT state text, OUT done bigint, OUT pending bigint, OUT wait double precision
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    v_job    outbox.jobs;
    v_now    timestamptz;
    v_limit  integer;
    v_look   integer;
    v_at     timestamptz[];
    v_seq    bigint[];
    v_id     uuid[];
    v_lane   text[];
    v_fits   boolean[];
    v_n      integer;   -- how many of them are gone over
    v_ids    uuid[];
    v_lanes  text[];
    v_done   integer;
BEGIN
    wait := 0;
    SELECT * INTO v_job FROM outbox.jobs j WHERE j.job = p_job FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        SELECT CASE WHEN j.state = 'running' THEN 'busy' ELSE j.state END, j.done, j.pending
          INTO state, done, pending FROM outbox.jobs j WHERE j.job = p_job;
        state := coalesce(state, 'missing');
        RETURN;
    END IF;
    state := v_job.state;
    done := v_job.done;
    pending := v_job.pending;
    IF state <> 'running' THEN RETURN; END IF;
    v_now := clock_timestamp();
    wait := greatest(extract(epoch FROM v_job.next_at - v_now)::double precision, 0);
    IF wait > 0 THEN RETURN; END IF;
    -- What a rate allows in a fifth of a second at a time, so that it comes evenly.
    v_limit := greatest(least(p_limit, ceil(v_job.rate / 5)::integer), 1);
    v_look := 10 * p_limit;

    IF v_job.source = 'dead' THEN
        SELECT array_agg(c.died_at ORDER BY c.n), array_agg(c.seq ORDER BY c.n), array_agg(c.id ORDER BY c.n),
               array_agg(c.lane_endpoint ORDER BY c.n), array_agg(c.fits ORDER BY c.n)
          INTO v_at, v_seq, v_id, v_lane, v_fits
          FROM (SELECT d.*, row_number() OVER (ORDER BY d.died_at, d.seq, d.id, d.lane_endpoint) AS n,
                       outbox.fits(d.topic, d.endpoint, d.key, d.reason, d.status, d.last_error, v_job.topic, v_job.endpoint,
                                   v_job.key, v_job.reason, v_job.status, v_job.error) AS fits
                  FROM (SELECT d.died_at, d.seq, d.id, d.lane_endpoint, d.topic, d.endpoint, d.key, d.reason, d.status, d.last_error
                          FROM outbox.dead_letters d
                         WHERE (d.died_at, d.seq, d.id, d.lane_endpoint)
                               > (v_job.cursor_at, v_job.cursor_seq, v_job.cursor_id, v_job.cursor_lane)
                           AND d.died_at < v_job.until
                         ORDER BY d.died_at, d.seq, d.id, d.lane_endpoint
                         LIMIT v_look) d) c;
    ELSE
        SELECT array_agg(c.delivered_at ORDER BY c.n), array_agg(c.seq ORDER BY c.n), array_agg(c.id ORDER BY c.n),
               array_agg(c.lane_endpoint ORDER BY c.n), array_agg(c.fits ORDER BY c.n)
          INTO v_at, v_seq, v_id, v_lane, v_fits
          FROM (SELECT d.*, row_number() OVER (ORDER BY d.delivered_at, d.seq, d.id, d.lane_endpoint) AS n,
                       outbox.fits(d.topic, d.endpoint, d.key, NULL, NULL, NULL, v_job.topic, v_job.endpoint,
                                   v_job.key, NULL, NULL, NULL)
                       -- Delivered again since, perhaps because this job replayed it: that is the one that counts.
                       AND (SELECT true FROM outbox.delivered o
                             WHERE o.id = d.id AND o.lane_endpoint = d.lane_endpoint
                               AND (o.generation, o.delivered_at) > (d.generation, d.delivered_at)
                             LIMIT 1) IS NULL AS fits
                  FROM (SELECT d.delivered_at, d.seq, d.id, d.lane_endpoint, d.generation, d.topic, d.endpoint, d.key
                          FROM outbox.delivered d
                         WHERE d.delivered_at >= v_job.cursor_at
                           AND (d.delivered_at, d.seq, d.id, d.lane_endpoint)
                               > (v_job.cursor_at, v_job.cursor_seq, v_job.cursor_id, v_job.cursor_lane)
                           AND d.delivered_at < v_job.until
                         ORDER BY d.delivered_at, d.seq, d.id, d.lane_endpoint
                         LIMIT v_look) d) c;
    END IF;

    -- Up to the last that is taken, or to the end of what was looked at.
    SELECT max(f.n) INTO v_n
      FROM (SELECT f.n FROM unnest(v_fits) WITH ORDINALITY AS f (fits, n) WHERE f.fits ORDER BY f.n LIMIT v_limit) f;
    IF coalesce((SELECT count(*) FROM unnest(v_fits) AS f (fits) WHERE f.fits), 0) <= v_limit THEN
        v_n := coalesce(cardinality(v_fits), 0);
    END IF;
    SELECT coalesce(array_agg(u.id), '{}'), coalesce(array_agg(u.lane), '{}')
      INTO v_ids, v_lanes
      FROM (SELECT DISTINCT u.id, u.lane
              FROM unnest(v_id, v_lane, v_fits) WITH ORDINALITY AS u (id, lane, fits, n)
             WHERE u.fits AND u.n <= v_n) u;
    v_done := CASE v_job.verb
        WHEN 'replay' THEN (SELECT cardinality(r.ids)
                              FROM outbox.revive(v_job.source, v_ids, v_lanes, v_job.new_key, v_job.why, v_job.started_by) r)
        ELSE outbox.forget(v_ids, v_lanes, v_job.why, v_job.started_by) END;

    done := done + v_done;
    pending := pending + cardinality(v_ids) - v_done;
    IF v_n < v_look AND v_n = coalesce(cardinality(v_fits), 0) THEN
        state := 'done';
    END IF;
    UPDATE outbox.jobs j
       SET done = run_job.done, pending = run_job.pending, state = run_job.state, moved_at = v_now,
           finished_at = CASE WHEN run_job.state = 'done' THEN v_now END,
           next_at = v_now + make_interval(secs => cardinality(v_ids) / coalesce(v_job.rate, 'infinity')),
           cursor_at = coalesce(v_at[v_n], j.cursor_at), cursor_seq = coalesce(v_seq[v_n], j.cursor_seq),
           cursor_id = coalesce(v_id[v_n], j.cursor_id), cursor_lane = coalesce(v_lane[v_n], j.cursor_lane)
     WHERE j.job = p_job
    RETURNING extract(epoch FROM j.next_at - v_now) INTO wait;
END
$$;
COMMENT ON FUNCTION outbox.run_job IS 'Public. Does a piece of a job: SELECT * FROM outbox.run_job(job), until it says done.';
