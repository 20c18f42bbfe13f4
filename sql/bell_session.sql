-- Settings of the keeper's two sessions, which must be direct: a pooler would hand them on. They wait for as long as it takes,
-- and the server finds out within about ten seconds that their relay is no more. For what this server is too old for, nothing
-- is set.
SET search_path = pg_catalog, pg_temp;
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_session_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET tcp_keepalives_idle = 5;
SET tcp_keepalives_interval = 2;
SET tcp_keepalives_count = 3;
SET tcp_user_timeout = '10s';
SELECT set_config(s.name, '0', false) FROM pg_settings s WHERE s.name = 'transaction_timeout'
