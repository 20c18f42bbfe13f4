-- Takes a pending message back: $1 id uuid. See functions/cancel.sql.
SELECT c.cancelled, c.in_flight FROM outbox.cancel($1) c
