-- Ends a job where it is: $1 job bigint. Returns whether it was running, NULL if there is no such job.
SELECT outbox.abort_job($1) AS was_running
