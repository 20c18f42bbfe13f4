-- Takes everything from a dead relay: see functions/reap.sql.
-- $1 relay uuid, $2 the beat that was watched bigint, $3 max lost int.
SELECT r.reaped, r.lost, r.dead FROM outbox.reap($1, $2, $3) r
