-- Ends the sessions of keepers that were reaped: see functions/hang_up.sql. Returns whether it may.
SELECT outbox.hang_up() AS may
