-- The process id of this session.
SELECT pg_backend_pid() AS pid
