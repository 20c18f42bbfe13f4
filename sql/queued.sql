-- Whether inserters ring for a session: it holds the lock, or queues for it.
-- $1 its process id int.
SELECT EXISTS (SELECT FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.classid = 1870034018 AND l.objid = 1 AND l.objsubid = 2 AND l.pid = $1) AS queued
