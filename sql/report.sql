-- Tells the circuit breaker what this relay saw: see functions/report.sql.
-- $1 endpoint, $2 successes, $3 failures, $4 ratio, $5 minimum int, $6 window, $7 pause, $8 cap in seconds.
SELECT r.state, r.open_for FROM outbox.report($1, $2, $3, $4, $5, $6, $7, $8) r
