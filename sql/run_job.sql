-- Does a piece of a job: $1 job bigint, $2 messages at most int. See functions/run_job.sql.
SELECT r.state, r.done, r.pending, r.wait FROM outbox.run_job($1, $2) r
