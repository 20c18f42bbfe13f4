-- Does a piece of a job: replays or discards up to p_limit messages (1 to 10000), in a transaction of its own, and remembers how far it
-- came. Call it until it says done. Whoever calls it goes on where the last one stopped; two at once do not meet.
--
-- Messages come in the order in which they died or were delivered, which is that of their keys. A piece is short: it looks at no more
-- than ten times as many rows, where few of many are meant, and takes no more than 32 MB of payloads, or one message.
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
    v_job   outbox.jobs;
    v_now   timestamptz;
    v_limit integer;
    v_look  integer;
    v_at    timestamptz[];
    v_seq   bigint[];
    v_id    uuid[];
    v_lane  text[];
    v_generation integer[];
    v_taken integer;
    v_done  integer;
    v_last  record;     -- the end of what was looked at, if all of it was
BEGIN
    wait := 0;
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'a piece has from 1 to 10000 messages, not %', p_limit USING ERRCODE = 'invalid_parameter_value';
    END IF;
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
    v_limit := greatest(least(p_limit, ceil(v_job.rate / 5)), 1);
    v_look := greatest(10 * v_limit, 1000);

    -- It ends at the last that is taken: what is behind need not be read.
    IF v_job.source = 'dead' THEN
        SELECT array_agg(c.died_at ORDER BY c.n), array_agg(c.seq ORDER BY c.n), array_agg(c.id ORDER BY c.n),
               array_agg(c.lane_endpoint ORDER BY c.n), array_agg(c.generation ORDER BY c.n)
          INTO v_at, v_seq, v_id, v_lane, v_generation
          FROM (SELECT f.*, row_number() OVER w AS n, sum(f.size) OVER w AS bytes
                  FROM (SELECT d.*
                          FROM (SELECT d.died_at, d.seq, d.id, d.lane_endpoint, d.generation, d.size, d.topic, d.endpoint, d.key,
                                       d.reason, d.status, d.last_error, d.step
                                  FROM outbox.dead_letters d
                                 WHERE (d.died_at, d.seq, d.id, d.lane_endpoint)
                                       > (v_job.cursor_at, v_job.cursor_seq, v_job.cursor_id, v_job.cursor_lane)
                                   AND d.died_at < v_job.until
                                 ORDER BY d.died_at, d.seq, d.id, d.lane_endpoint
                                 LIMIT v_look) d
                         WHERE d.step IS NULL
                           AND outbox.fits(d.topic, d.endpoint, d.key, d.reason, d.status, d.last_error, v_job.topic, v_job.endpoint,
                                           v_job.key, v_job.reason, v_job.status, v_job.error)
                         ORDER BY d.died_at, d.seq, d.id, d.lane_endpoint
                         LIMIT v_limit) f
                WINDOW w AS (ORDER BY f.died_at, f.seq, f.id, f.lane_endpoint ROWS UNBOUNDED PRECEDING)) c
         WHERE c.n = 1 OR c.bytes <= 33554432;
    ELSE
        SELECT array_agg(c.delivered_at ORDER BY c.n), array_agg(c.seq ORDER BY c.n), array_agg(c.id ORDER BY c.n),
               array_agg(c.lane_endpoint ORDER BY c.n), array_agg(c.generation ORDER BY c.n)
          INTO v_at, v_seq, v_id, v_lane, v_generation
          FROM (SELECT f.*, row_number() OVER w AS n, sum(f.size) OVER w AS bytes
                  FROM (SELECT d.*
                          FROM (SELECT d.delivered_at, d.seq, d.id, d.lane_endpoint, d.generation, d.size, d.topic, d.endpoint, d.key, d.step
                                  FROM outbox.delivered d
                                 WHERE d.delivered_at >= v_job.cursor_at
                                   AND (d.delivered_at, d.seq, d.id, d.lane_endpoint)
                                       > (v_job.cursor_at, v_job.cursor_seq, v_job.cursor_id, v_job.cursor_lane)
                                   AND d.delivered_at < v_job.until
                                 ORDER BY d.delivered_at, d.seq, d.id, d.lane_endpoint
                                 LIMIT v_look) d
                         WHERE d.step IS NULL
                           AND outbox.fits(d.topic, d.endpoint, d.key, NULL, NULL, NULL, v_job.topic, v_job.endpoint,
                                           v_job.key, NULL, NULL, NULL)
                           -- Of several times the last one counts.
                           AND (SELECT true FROM outbox.delivered o
                                 WHERE o.id = d.id AND o.lane_endpoint = d.lane_endpoint
                                   AND (o.generation, o.delivered_at) > (d.generation, d.delivered_at)
                                   -- Its index is not the one to look into.
                                   AND o.delivered_at + interval '0' < v_job.until
                                 LIMIT 1) IS NULL
                           AND (SELECT true FROM outbox.dead_letters o WHERE o.id = d.id AND o.lane_endpoint = d.lane_endpoint) IS NULL
                         ORDER BY d.delivered_at, d.seq, d.id, d.lane_endpoint
                         LIMIT v_limit) f
                WINDOW w AS (ORDER BY f.delivered_at, f.seq, f.id, f.lane_endpoint ROWS UNBOUNDED PRECEDING)) c
         WHERE c.n = 1 OR c.bytes <= 33554432;
    END IF;
    v_taken := coalesce(cardinality(v_id), 0);
    IF v_taken = 0 THEN
        v_done := 0;
    ELSIF v_job.verb = 'discard' THEN
        v_done := outbox.forget(v_id, v_lane, v_seq, v_generation, v_job.why, v_job.started_by);
    ELSE
        SELECT cardinality(r.ids), r.seen INTO v_done, v_taken
          FROM outbox.revive(v_job.source, v_id, v_lane, v_seq, v_generation, v_job.new_key, v_job.why, v_job.started_by) r;
    END IF;

    IF v_id IS NULL THEN
        -- Nothing among as many rows as it looks at: it goes on behind them, if there were as many.
        IF v_job.source = 'dead' THEN
            SELECT d.died_at AS at, d.seq, d.id, d.lane_endpoint AS lane INTO v_last
              FROM outbox.dead_letters d
             WHERE (d.died_at, d.seq, d.id, d.lane_endpoint)
                   > (v_job.cursor_at, v_job.cursor_seq, v_job.cursor_id, v_job.cursor_lane)
               AND d.died_at < v_job.until
             ORDER BY d.died_at, d.seq, d.id, d.lane_endpoint
            OFFSET v_look - 1 LIMIT 1;
        ELSE
            SELECT d.delivered_at AS at, d.seq, d.id, d.lane_endpoint AS lane INTO v_last
              FROM outbox.delivered d
             WHERE d.delivered_at >= v_job.cursor_at
               AND (d.delivered_at, d.seq, d.id, d.lane_endpoint)
                   > (v_job.cursor_at, v_job.cursor_seq, v_job.cursor_id, v_job.cursor_lane)
               AND d.delivered_at < v_job.until
             ORDER BY d.delivered_at, d.seq, d.id, d.lane_endpoint
            OFFSET v_look - 1 LIMIT 1;
        END IF;
        IF NOT FOUND THEN state := 'done'; END IF;
    ELSE
        -- None yet, if it came to nothing of it: NULLs, and it stays where it is.
        SELECT v_at[v_taken] AS at, v_seq[v_taken] AS seq, v_id[v_taken] AS id, v_lane[v_taken] AS lane INTO v_last;
    END IF;
    done := done + v_done;
    pending := pending + v_taken - v_done;
    UPDATE outbox.jobs j
       SET done = run_job.done, pending = run_job.pending, state = run_job.state, moved_at = v_now,
           finished_at = CASE WHEN run_job.state = 'done' THEN v_now END,
           next_at = v_now + make_interval(secs => v_taken / coalesce(v_job.rate, 'infinity')),
           cursor_at = coalesce(v_last.at, j.cursor_at), cursor_seq = coalesce(v_last.seq, j.cursor_seq),
           cursor_id = coalesce(v_last.id, j.cursor_id), cursor_lane = coalesce(v_last.lane, j.cursor_lane)
     WHERE j.job = p_job
    RETURNING extract(epoch FROM j.next_at - v_now) INTO wait;
END
$$;
COMMENT ON FUNCTION outbox.run_job IS 'Public. Does a piece of a job: SELECT * FROM outbox.run_job(job), until it says done.';
