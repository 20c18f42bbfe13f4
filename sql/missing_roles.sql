-- The roles that do not exist here. Returns role.
SELECT r.role
  FROM unnest(ARRAY['outbox_writer', 'outbox_relay', 'outbox_reader']) AS r (role)
 WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles p WHERE p.rolname = r.role)
