-- Ends the sessions of keepers that no relay knows any more: of one that was cut off and reaped. Its network may swallow
-- everything and look alive, and then nothing else would end them.
--
-- Returns whether it may: a session of another role is left to the time-outs of TCP.
CREATE OR REPLACE FUNCTION outbox.hang_up() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    -- Before the relays, and in a statement of its own: a session is named before it takes these locks.
    v_pids integer[] := ARRAY(
        SELECT l.pid
          FROM pg_catalog.pg_locks l
          JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = pg_catalog.current_database()
         WHERE l.locktype = 'advisory' AND l.classid = 1870034018 AND l.objid IN (2, 3) AND l.objsubid = 2 AND l.granted);
BEGIN
    PERFORM pg_catalog.pg_terminate_backend(p.pid)
       FROM unnest(v_pids) AS p (pid)
      WHERE NOT EXISTS (SELECT FROM outbox.relays r WHERE p.pid = ANY (r.bell_pids));
    RETURN true;
EXCEPTION
    WHEN insufficient_privilege THEN RETURN false;
END
$$;
COMMENT ON FUNCTION outbox.hang_up IS 'Private. Ends the sessions of keepers that were reaped.';
