-- Takes in what the participant of an asynchronous step says later: $1 token text, $2 refused boolean, $3 output text (JSON) or NULL, $4 error
-- text or NULL. See functions/answer_step.sql.
SELECT outbox.answer_step($1, $2, $3, $4) AS status
