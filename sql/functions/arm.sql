-- Goes to sleep: waits for the advisory lock that makes inserters ring, alone, and keeps it for the session.
--
-- From the moment that it queues, inserters are refused a share of it and ring. Those from before hold theirs until they end; with
-- the last of them it is granted. A cancel ends the wait, and is caught here so that the server's log says nothing of it.
-- It may come when the lock is just there, and a session's lock survives the exception: so the answer is looked up. The server sends
-- one cancel as two signals, to the process and to its group; the second can come while the first is seen to.
--
-- Returns whether the lock is held.
CREATE OR REPLACE FUNCTION outbox.arm() RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM pg_catalog.pg_advisory_lock(1870034018, 1);
        RETURN true;
    EXCEPTION
        WHEN query_canceled THEN
            RETURN EXISTS (SELECT FROM pg_catalog.pg_locks l
                            WHERE l.locktype = 'advisory' AND l.classid = 1870034018 AND l.objid = 1 AND l.objsubid = 2
                              AND l.pid = pg_catalog.pg_backend_pid() AND l.granted);
    END;
EXCEPTION
    WHEN query_canceled THEN
        RETURN EXISTS (SELECT FROM pg_catalog.pg_locks l
                        WHERE l.locktype = 'advisory' AND l.classid = 1870034018 AND l.objid = 1 AND l.objsubid = 2
                          AND l.pid = pg_catalog.pg_backend_pid() AND l.granted);
END
$$;
COMMENT ON FUNCTION outbox.arm IS 'Private. Makes inserters ring, until the session lets go of the lock.';
