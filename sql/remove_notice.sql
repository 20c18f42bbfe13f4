-- A notice was sent, or is given up.
-- $1 notice uuid.
DELETE FROM outbox.notices n WHERE n.notice = $1
