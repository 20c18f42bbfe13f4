-- Takes tokens of an endpoint's rate limit, which holds over all relays together: one token is one request.
--
-- A relay takes what it may use during the next second and spends it from memory, so the row is written about once a second
-- per relay however fast it sends; more often only where the burst is less than what a second brings. What it did not use by
-- then it brings back when it takes more, so none of the rate is lost; after a pause it may not, for the bucket has filled up
-- meanwhile, and all that relays hoarded would come on top of a burst. Those tokens are lost, and those of a relay that dies,
-- which errs on the slow side.
--
-- p_rate in tokens per second, p_burst the most that can be saved up, p_want what the relay would like to have, p_back what it
-- brings back (less than zero: what it sent beyond what it took). Returns taken (whole tokens, 0 if there are none) and seconds until the next one is there.
CREATE OR REPLACE FUNCTION outbox.take_tokens(
    p_endpoint text, p_rate double precision, p_burst double precision, p_want integer, p_back integer,
    OUT taken integer, OUT next_in double precision
)
LANGUAGE plpgsql AS $$
DECLARE
    v_endpoint outbox.endpoints;
    v_now      timestamptz;
    v_tokens   double precision;
BEGIN
    taken := 0;
    SELECT * INTO v_endpoint FROM outbox.endpoints e WHERE e.endpoint = p_endpoint FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    v_now := clock_timestamp();
    -- A bucket that nobody has touched yet is full. A clock that stepped back adds nothing.
    v_tokens := least(p_burst, coalesce(v_endpoint.tokens + p_back
        + p_rate * greatest(extract(epoch FROM v_now - v_endpoint.tokens_at)::double precision, 0), p_burst));
    taken := greatest(least(floor(v_tokens)::integer, p_want), 0);
    v_tokens := v_tokens - taken;
    next_in := greatest(1 - v_tokens, 0) / p_rate;
    UPDATE outbox.endpoints e SET tokens = v_tokens, tokens_at = v_now WHERE e.endpoint = p_endpoint;
END
$$;
COMMENT ON FUNCTION outbox.take_tokens IS 'Private. Takes tokens of an endpoint''s rate limit.';
