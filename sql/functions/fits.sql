-- Whether a dead or delivered message is one of those that a filter means. Private: outbox.matching and outbox.run_job ask it of
-- each; one expression without a table behind it, so that it costs no call.
--
-- NULL where it does not because something is not there. A word of the filter that is NULL lets all pass. A topic may end in `*`: the beginning of topics. The error is looked for as a part,
-- in upper or lower case.
CREATE OR REPLACE FUNCTION outbox.fits(
    topic text, endpoint text, key text, reason text, status integer, error text,
    p_topic text, p_endpoint text, p_key text, p_reason text, p_status integer, p_error text
) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT (p_topic IS NULL OR topic = p_topic OR right(p_topic, 1) = '*' AND starts_with(topic, left(p_topic, -1)))
       AND (p_endpoint IS NULL OR endpoint = p_endpoint)
       AND (p_key IS NULL OR key = p_key)
       AND (p_reason IS NULL OR reason = p_reason)
       AND (p_status IS NULL OR status = p_status)
       AND (p_error IS NULL OR strpos(lower(error), lower(p_error)) > 0);
$$;
COMMENT ON FUNCTION outbox.fits IS 'Private. Whether a message is one of those that a filter means.';
