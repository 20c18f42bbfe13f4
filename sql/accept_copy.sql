-- Makes a restored or cloned database an outbox of its own: its new identity is written down, the relays and leases that
-- came along with the copy are forgotten, and the sequence goes on behind the highest seq.
UPDATE outbox.meta
   SET system_identifier = outbox.system_identifier(), database = current_database(), accepted_at = now(),
       database_oid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database());
DELETE FROM outbox.leases;
DELETE FROM outbox.relays;
SELECT setval('outbox.messages_seq_seq',
              greatest((SELECT s.last_value FROM outbox.messages_seq_seq s), coalesce(outbox.highest_seq(), 1)));
