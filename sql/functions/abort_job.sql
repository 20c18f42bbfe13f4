-- Ends a job where it is: what it has replayed or discarded stays so. Waits for a piece that is being done, which is short.
--
-- Returns whether it was running, NULL if there is no such job.
CREATE OR REPLACE FUNCTION outbox.abort_job(p_job bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE outbox.jobs j SET state = 'aborted', finished_at = clock_timestamp() WHERE j.job = p_job AND j.state = 'running';
    IF FOUND THEN RETURN true; END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM outbox.jobs j WHERE j.job = p_job) THEN false END;
END
$$;
COMMENT ON FUNCTION outbox.abort_job IS 'Public. Ends a replay or discard of many messages where it is: outbox.abort_job(job).';
