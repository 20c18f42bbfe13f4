-- Tries to become the keeper of the bell, for the length of this session. Returns whether it is.
SELECT pg_try_advisory_lock(1870034018, 2) AS kept
