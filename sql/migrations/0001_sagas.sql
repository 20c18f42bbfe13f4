-- === work of several steps ===

-- Its rules are in functions/check_plan.sql, which takes this one's place.
CREATE FUNCTION outbox.check_plan(p_steps jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';

CREATE TABLE outbox.sagas (
    id          uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    created_at  timestamptz NOT NULL DEFAULT now(),
    deadline_at timestamptz,
    finished_at timestamptz,
    message     uuid,
    at_step     integer     NOT NULL DEFAULT 0,
    generation  integer     NOT NULL DEFAULT 0,
    name        text        NOT NULL,
    key         text        NOT NULL,
    status      text        NOT NULL DEFAULT 'new'
        CHECK (status IN ('new', 'running', 'compensating', 'parked', 'succeeded', 'compensated')),
    phase       text        NOT NULL DEFAULT 'do' CHECK (phase IN ('do', 'undo')),
    forward     text        CHECK (forward IN ('done', 'unknown')),
    wanted      text        CHECK (wanted IN ('back', 'too_late')),
    failed_step text,
    error       text,
    headers     jsonb,
    input       json,
    steps       jsonb,
    outputs     json        NOT NULL DEFAULT '{}',
    unsure      text[]      NOT NULL DEFAULT '{}',
    trail       jsonb       NOT NULL DEFAULT '[]',
    UNIQUE (name, key),
    CONSTRAINT "name: 1 to 64 letters, digits, - _ . but none of - _ . first"
        CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'),
    CONSTRAINT "key: 1 to 1024 bytes, of one saga of each name"
        CHECK (octet_length(key) BETWEEN 1 AND 1024),
    CONSTRAINT "input: at most 1 MiB (1048576 bytes)"
        CHECK (octet_length(input::text) <= 1048576),
    CONSTRAINT "created_at, deadline_at: a finite time"
        CHECK (isfinite(created_at) AND isfinite(deadline_at)),
    CONSTRAINT "steps: a plan"
        CHECK (outbox.check_plan(steps)),
    CONSTRAINT "headers: a JSON object whose values are strings"
        CHECK (jsonb_typeof(headers) = 'object' AND NOT jsonb_path_exists(headers, 'strict $.* ? (@.type() != "string")')),
    CONSTRAINT "headers: a name is an HTTP token of letters, digits, - _ . etc"
        CHECK (NOT jsonb_path_exists(headers, '$.keyvalue() ? (!(@.key like_regex "^[-!#$%&''*+.^_`|~0-9A-Za-z]+$"))')),
    CONSTRAINT "headers: a value has visible ASCII characters only"
        CHECK (NOT jsonb_path_exists(headers, '$.* ? (!(@ like_regex "^[\\t -~]*$"))')),
    CONSTRAINT "headers: a name that the relay or HTTP itself sets"
        CHECK (NOT jsonb_path_exists(headers, '$.keyvalue() ? (@.key like_regex
            "^(host|content-length|content-type|transfer-encoding|connection|keep-alive|proxy-.*|te|trailer|upgrade|expect|idempotency-key|outbox-.*|saga-.*|webhook-.*)$" flag "i")')),
    CONSTRAINT "headers: at most 16 kB in all"
        CHECK (octet_length(headers::text) <= 16384)
) WITH (fillfactor = 70);
-- Each is small: what has begun and what is over leave the first two, and most sagas never enter the third.
CREATE INDEX sagas_planned ON outbox.sagas (created_at)       WHERE status = 'new' AND steps IS NOT NULL;
CREATE INDEX sagas_named   ON outbox.sagas (name, created_at) WHERE status = 'new' AND steps IS NULL;
CREATE INDEX sagas_back    ON outbox.sagas (id)               WHERE status = 'running' AND wanted = 'back';
CREATE INDEX sagas_deadline ON outbox.sagas (deadline_at)
    WHERE status IN ('running', 'parked') AND phase = 'do' AND wanted IS NULL AND deadline_at IS NOT NULL;
CREATE UNIQUE INDEX sagas_message ON outbox.sagas (message)   WHERE message IS NOT NULL;
CREATE INDEX sagas_newest ON outbox.sagas (created_at, id);
CREATE INDEX sagas_parked ON outbox.sagas (created_at, id)    WHERE status = 'parked';
CREATE INDEX sagas_finished ON outbox.sagas (finished_at)     WHERE finished_at IS NOT NULL;
COMMENT ON TABLE  outbox.sagas             IS 'Public. Work of several steps: insert here, in the transaction of the business write. Each step is a message that waits for its predecessor.';
COMMENT ON COLUMN outbox.sagas.id          IS 'Public. The saga''s identity.';
COMMENT ON COLUMN outbox.sagas.name        IS 'Public. What kind of work it is; names the plan in the configuration where steps is NULL.';
COMMENT ON COLUMN outbox.sagas.key         IS 'Public. What it is about: INSERT … ON CONFLICT DO NOTHING starts one saga for each name and key.';
COMMENT ON COLUMN outbox.sagas.input       IS 'Public. JSON that every step receives.';
COMMENT ON COLUMN outbox.sagas.steps       IS 'Public. The plan, an array of steps; NULL: a relay copies the one that its configuration has under this name.';
COMMENT ON COLUMN outbox.sagas.headers     IS 'Public. Extra headers of every request, an object of strings.';
COMMENT ON COLUMN outbox.sagas.deadline_at IS 'Public. What is not past its pivot by then goes back.';
COMMENT ON COLUMN outbox.sagas.created_at  IS 'Public. When it was inserted.';
COMMENT ON COLUMN outbox.sagas.status      IS 'Public, read only. new, running, compensating (it goes back), parked (it waits for an operator), succeeded, compensated (all that was done and can be undone is).';
COMMENT ON COLUMN outbox.sagas.at_step     IS 'Public, read only. The step that it is at, from 0.';
COMMENT ON COLUMN outbox.sagas.phase       IS 'Public, read only. do or undo: what is asked of that step.';
COMMENT ON COLUMN outbox.sagas.outputs     IS 'Public, read only. What the finished steps answered, by name; null where that was no JSON.';
COMMENT ON COLUMN outbox.sagas.failed_step IS 'Public, read only. The step that failed last.';
COMMENT ON COLUMN outbox.sagas.error       IS 'Public, read only. What it said, or why the saga goes back.';
COMMENT ON COLUMN outbox.sagas.generation  IS 'Public, read only. Raised when it is run again from a step.';
COMMENT ON COLUMN outbox.sagas.trail       IS 'Public, read only. What became of each step, the oldest first: generation, step, phase, message (the id of its message), event, at, and error, why and by where there are some.';
COMMENT ON COLUMN outbox.sagas.message     IS 'Private. The message of the step that it is at.';
COMMENT ON COLUMN outbox.sagas.forward     IS 'Private. While it goes back: whether the step that is undone was done.';
COMMENT ON COLUMN outbox.sagas.unsure      IS 'Private. Steps that an operator skipped though nobody knows whether they were done: on the way back they are undone.';
COMMENT ON COLUMN outbox.sagas.wanted      IS 'Private. back = it is to go back as soon as nothing is in flight; too_late = it was, and could not.';
