-- How the doorbell stands.
--
-- Returns hangs (there is a trigger that rings), kept (a relay keeps the bell: it holds the advisory lock (1870034018, 2)), stray
-- (a session keeps it, or listens for it under a share of (1870034018, 3), and no relay says that it is its own: that relay was
-- reaped) and the number of relays.
CREATE OR REPLACE FUNCTION outbox.doorbell(OUT hangs boolean, OUT kept boolean, OUT stray boolean, OUT relays bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_pids integer[];
BEGIN
    hangs := EXISTS (SELECT FROM pg_catalog.pg_trigger t
                      WHERE t.tgrelid = 'outbox.messages'::pg_catalog.regclass AND t.tgname = 'messages_ring' AND t.tgenabled IN ('O', 'A'));
    -- The locks before the relays: a session is named before it takes them.
    SELECT coalesce(bool_or(l.objid = 2), false), coalesce(array_agg(l.pid), '{}')
      INTO kept, v_pids
      FROM pg_catalog.pg_locks l
      JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = pg_catalog.current_database()
     WHERE l.locktype = 'advisory' AND l.classid = 1870034018 AND l.objid IN (2, 3) AND l.objsubid = 2 AND l.granted;
    stray := EXISTS (SELECT FROM unnest(v_pids) AS p (pid)
                      WHERE NOT EXISTS (SELECT FROM outbox.relays r WHERE p.pid = ANY (r.bell_pids)));
    relays := (SELECT count(*) FROM outbox.relays r);
END
$$;
COMMENT ON FUNCTION outbox.doorbell IS 'Private. Whether somebody rings, and whether somebody listens.';
