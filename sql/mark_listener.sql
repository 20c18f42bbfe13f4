-- Marks the session that listens for the keeper, so that it can be found should its relay be gone (functions/hang_up.sql).
SELECT pg_try_advisory_lock_shared(1870034018, 3)
