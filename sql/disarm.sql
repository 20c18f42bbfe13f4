-- Awake: inserters need not ring. Only for a session that holds the lock. Returns whether it did.
SELECT pg_advisory_unlock(1870034018, 1) AS held
