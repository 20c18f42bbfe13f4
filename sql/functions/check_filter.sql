-- Refuses a filter that can mean nothing. Private: whoever takes a filter calls it.
CREATE OR REPLACE FUNCTION outbox.check_filter(p_source text, p_reason text, p_status integer, p_error text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_source IS NULL OR p_source NOT IN ('pending', 'dead', 'delivered') THEN
        RAISE EXCEPTION 'a message is pending, dead or delivered, not %', p_source USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_source = 'delivered' AND (p_reason IS NOT NULL OR p_status IS NOT NULL OR p_error IS NOT NULL) THEN
        RAISE EXCEPTION 'what was delivered has no reason, status or error' USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_source = 'pending' AND (p_reason IS NOT NULL OR p_status IS NOT NULL) THEN
        RAISE EXCEPTION 'what is pending has no reason and no status' USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_reason NOT IN ('rejected', 'attempts', 'max_age', 'expired', 'lost') THEN
        RAISE EXCEPTION 'a reason is rejected, attempts, max_age, expired or lost, not %', p_reason USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.check_filter IS 'Private. Refuses a filter that can mean nothing.';
