-- Makes one row per endpoint of due rows whose topic goes to several: see functions/expand.sql.
-- $1 relay uuid, $2 session int, $3 epoch uuid, $4 topic, $5 to text[], $6 known text[], $7 limit int, $8 bytes bigint,
-- $9 ready floor bigint, $10 waiting floor timestamptz and $11 its seq, $12 lease floor bigint.
SELECT e.state, e.endpoints, e.ready_floor, e.waiting_floor, e.waiting_seq, e.lease_floor, e.dry, e.next_due_in, e.others
  FROM outbox.expand($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) e
