-- A notice could not be sent: not before so many seconds from now, unless somebody else has taken it meanwhile.
-- $1 notice uuid, $2 attempts int as when it was taken, $3 seconds double precision.
UPDATE outbox.notices n
   SET not_before = clock_timestamp() + make_interval(secs => $3)
 WHERE n.notice = $1 AND n.attempts = $2
