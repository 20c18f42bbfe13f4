-- How long ago the oldest snapshot was taken that keeps what was delivered since from being vacuumed: of a session in any database, of a
-- prepared transaction. Of other users' sessions only a member of pg_read_all_stats sees this. Returns seconds, 0 if there is none.
SELECT greatest(
           coalesce((SELECT max(extract(epoch FROM clock_timestamp() - a.xact_start))
                       FROM pg_stat_activity a
                      WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()), 0),
           coalesce((SELECT max(extract(epoch FROM clock_timestamp() - p.prepared)) FROM pg_prepared_xacts p), 0)
       )::double precision AS seconds
