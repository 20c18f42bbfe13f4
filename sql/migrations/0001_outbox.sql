-- The tables. `outbox.messages` is the contract with the application; all the others are the relay's own.
--
-- Every name is written with its schema: the application's search_path is not ours. CHECK constraints that guard what an
-- application inserts are named by the sentence that it reads when it breaks the rule.

-- A DBA may have made it for an owner who may not; `migrate` refuses one with something in it.
CREATE SCHEMA IF NOT EXISTS outbox;
COMMENT ON SCHEMA outbox IS 'Transactional outbox: rows inserted into outbox.messages are delivered over HTTP by outbox-relay.';

CREATE TABLE outbox.migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE outbox.migrations IS 'Which migrations this database has. A relay refuses a database that is newer than itself.';

-- === what the application sees ===

CREATE TABLE outbox.messages (
    -- fixed-width columns first: no padding between them
    id           uuid        NOT NULL DEFAULT gen_random_uuid(),
    seq          bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    created_at   timestamptz NOT NULL DEFAULT now(),
    due_at       timestamptz,
    expires_at   timestamptz,
    replayed_at  timestamptz,
    attempts     integer     NOT NULL DEFAULT 0,
    lost         integer     NOT NULL DEFAULT 0,
    throttled    integer     NOT NULL DEFAULT 0,
    generation   integer     NOT NULL DEFAULT 0,
    size         integer     NOT NULL GENERATED ALWAYS AS (coalesce(octet_length(payload::text), octet_length(body), 0)) STORED,
    topic        text        NOT NULL,
    endpoint     text        NOT NULL DEFAULT '',
    key          text,
    type         text,
    content_type text,
    headers      jsonb,
    payload      json,
    body         bytea,
    last_error   text,
    sent_to      text,
    step         jsonb,
    PRIMARY KEY (id, endpoint),
    CONSTRAINT "topic: one that begins with saga: is for steps of outbox.sagas"
        CHECK ((topic LIKE 'saga:%') = (step IS NOT NULL)),
    CONSTRAINT "topic: 1 to 255 bytes, no control characters"
        CHECK (octet_length(topic) BETWEEN 1 AND 255 AND topic !~ '[[:cntrl:]]'),
    CONSTRAINT "key: 1 to 1024 bytes; for no ordering key leave it NULL"
        CHECK (octet_length(key) BETWEEN 1 AND 1024),
    CONSTRAINT "type: 1 to 255 bytes, no control characters"
        CHECK (octet_length(type) BETWEEN 1 AND 255 AND type !~ '[[:cntrl:]]'),
    CONSTRAINT "content_type: 1 to 255 visible ASCII characters"
        CHECK (octet_length(content_type) BETWEEN 1 AND 255 AND content_type !~ '[^ -~]'),
    CONSTRAINT "created_at: a finite time"
        CHECK (isfinite(created_at)),
    CONSTRAINT "payload, body: at most one of the two"
        CHECK (payload IS NULL OR body IS NULL),
    CONSTRAINT "payload, body: at most 16 MiB (16777216 bytes)"
        CHECK (size <= 16777216),
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
) WITH (
    -- Rows come and go: vacuum by count, not by share of a table that is nearly empty, and never take the exclusive
    -- lock that gives empty pages back.
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 50000,
    vacuum_truncate = off
);

-- A row pays only for the indexes that it uses.
CREATE INDEX messages_ready   ON outbox.messages (topic, endpoint, seq)         WHERE due_at IS NULL;
CREATE INDEX messages_waiting ON outbox.messages (topic, endpoint, due_at, seq) WHERE due_at IS NOT NULL;
CREATE INDEX messages_keyed   ON outbox.messages (topic, endpoint, key, seq)    WHERE key IS NOT NULL;
CREATE INDEX messages_expiring ON outbox.messages (expires_at, seq)             WHERE expires_at IS NOT NULL;
CREATE INDEX messages_token   ON outbox.messages ((step ->> 'token'))           WHERE step ->> 'token' IS NOT NULL;

COMMENT ON TABLE  outbox.messages              IS 'Public. Pending messages: insert here, in the transaction of the business write. A delivered or dead one leaves the table.';
COMMENT ON COLUMN outbox.messages.id           IS 'Public. The message''s identity and its Idempotency-Key. The application may supply its own.';
COMMENT ON COLUMN outbox.messages.topic        IS 'Public. What the message is about, words between dots: decides the route, and is the scope of order.';
COMMENT ON COLUMN outbox.messages.key          IS 'Public. Ordering key, usually the aggregate''s id; optional.';
COMMENT ON COLUMN outbox.messages.type         IS 'Public. Event or command type; optional.';
COMMENT ON COLUMN outbox.messages.payload      IS 'Public. JSON, sent byte for byte as stored.';
COMMENT ON COLUMN outbox.messages.body         IS 'Public. Anything that is not JSON, instead of payload.';
COMMENT ON COLUMN outbox.messages.content_type IS 'Public. Of the body (default application/octet-stream) or of the payload (default application/json).';
COMMENT ON COLUMN outbox.messages.headers      IS 'Public. Extra request headers, an object of strings.';
COMMENT ON COLUMN outbox.messages.due_at       IS 'Public. Not before; NULL = now. The relay moves it after a failure.';
COMMENT ON COLUMN outbox.messages.expires_at   IS 'Public. Given up after this, with reason expired.';
COMMENT ON COLUMN outbox.messages.created_at   IS 'Public. When it was inserted.';
COMMENT ON COLUMN outbox.messages.replayed_at  IS 'Private. When it was replayed last: its age counts from then.';
COMMENT ON COLUMN outbox.messages.seq          IS 'Public, read only. Order of insertion.';
COMMENT ON COLUMN outbox.messages.endpoint     IS 'Private. Empty, or the endpoint that fan-out made this row for.';
COMMENT ON COLUMN outbox.messages.sent_to      IS 'Private. The endpoint that it was tried at from the lane of its topic, under its id as the key: fan-out does not change either.';
COMMENT ON COLUMN outbox.messages.attempts     IS 'Private. Attempts that were answered or failed.';
COMMENT ON COLUMN outbox.messages.lost         IS 'Private. How many relays died with it under their lease.';
COMMENT ON COLUMN outbox.messages.throttled    IS 'Private. Attempts that the receiver put off; they use no attempt.';
COMMENT ON COLUMN outbox.messages.generation   IS 'Private. Raised by each replay.';
COMMENT ON COLUMN outbox.messages.step         IS 'Private. Of a step of a saga: which one of which saga, and how it is sent.';
COMMENT ON COLUMN outbox.messages.size         IS 'Private. Bytes of payload or body, known at insert so that a claim can be bounded in bytes.';
COMMENT ON COLUMN outbox.messages.last_error   IS 'Private. What the last failed attempt said.';

-- === who may deliver what ===

CREATE TABLE outbox.lanes (
    topic      text NOT NULL,
    endpoint   text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    leads_to   text[] NOT NULL DEFAULT '{}',
    in_order   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (topic, endpoint)
) WITH (fillfactor = 50);
COMMENT ON TABLE outbox.lanes IS 'Private. One row for each (topic, endpoint) of messages: its lock makes claims of the lane exclusive.';
COMMENT ON COLUMN outbox.lanes.leads_to IS 'For people. The endpoints that its messages go to, as the relay says that looked last.';
COMMENT ON COLUMN outbox.lanes.in_order IS 'For people. Whether its keys keep their order.';

CREATE TABLE outbox.endpoints (
    endpoint     text PRIMARY KEY,
    paused_at    timestamptz,
    paused_by    text,
    pause_reason text,
    change       text CHECK (change IN ('paused', 'resumed')), changed_at timestamptz, changed_by text, change_reason text,
    not_before   timestamptz,
    breaker      text NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'half_open')),
    breaker_until timestamptz,
    closed_at    timestamptz,
    openings     integer NOT NULL DEFAULT 0,
    successes    double precision NOT NULL DEFAULT 0,
    failures     double precision NOT NULL DEFAULT 0,
    counted_at   timestamptz NOT NULL DEFAULT now(),
    tokens       double precision,
    tokens_at    timestamptz,
    saturated_at timestamptz, saturated_with integer,
    timeout      double precision,
    created_at   timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
COMMENT ON TABLE  outbox.endpoints            IS 'Private. What holds for an endpoint across all relays: its row is locked by claims, and written about once a second per relay at most.';
COMMENT ON COLUMN outbox.endpoints.change     IS 'The last pause or resume; with changed_at, changed_by and change_reason. Kept until the next one.';
COMMENT ON COLUMN outbox.endpoints.not_before IS 'The receiver asked to be left alone until then (Retry-After).';
COMMENT ON COLUMN outbox.endpoints.breaker    IS 'closed = it gets messages, open = none until breaker_until, half_open = a few probes.';
COMMENT ON COLUMN outbox.endpoints.openings   IS 'How often the breaker opened in a row: each time for longer.';
COMMENT ON COLUMN outbox.endpoints.failures   IS 'Of the window that decays, as of counted_at.';
COMMENT ON COLUMN outbox.endpoints.timeout    IS 'How many seconds a request may take, as the relay says that started last: a step that was lost with its relay is undone after that.';
COMMENT ON COLUMN outbox.endpoints.saturated_at IS 'When a claim last found that max_in_flight was used up, to the second; it was saturated_with then.';
COMMENT ON COLUMN outbox.endpoints.tokens     IS 'Of the rate limit, as of tokens_at; NULL = a full bucket.';

CREATE TABLE outbox.relays (
    relay         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name          text NOT NULL,
    version       text NOT NULL,
    config_digest text NOT NULL,
    lease_time    interval NOT NULL,
    session       integer NOT NULL DEFAULT 0,
    beat          bigint NOT NULL DEFAULT 0,
    beat_at       timestamptz NOT NULL DEFAULT now(),
    started_at    timestamptz NOT NULL DEFAULT now(),
    unrouted_topics    text[] NOT NULL DEFAULT '{}',
    unrouted_endpoints text[] NOT NULL DEFAULT '{}',
    bell_pids     integer[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);
COMMENT ON TABLE  outbox.relays         IS 'Private. The relays that live, or that nobody has yet seen to be dead. A lease lives as long as its relay.';
COMMENT ON COLUMN outbox.relays.session IS 'Raised when a relay lost sight of one of its claims, so that the claim can do nothing later.';
COMMENT ON COLUMN outbox.relays.unrouted_topics IS 'Of the lanes that it found and can''t deliver, for status; in step with unrouted_endpoints.';
COMMENT ON COLUMN outbox.relays.bell_pids IS 'The sessions that it keeps the doorbell with, or tried to; whether it does, their locks say.';
COMMENT ON COLUMN outbox.relays.beat_at IS 'For people. Whether a relay is dead is decided by watching beat, never by this clock.';

CREATE TABLE outbox.leases (
    lease         bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    relay         uuid NOT NULL,
    topic         text NOT NULL,
    lane_endpoint text NOT NULL,
    endpoint      text NOT NULL,
    alone         boolean NOT NULL DEFAULT false,
    hold          boolean NOT NULL DEFAULT false,
    ids           uuid[] NOT NULL,
    keys          text[] NOT NULL,
    leased_at     timestamptz NOT NULL DEFAULT now(),
    ready_end       bigint,
    waiting_end     timestamptz,
    waiting_end_seq bigint,
    PRIMARY KEY (relay, lease)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off
);
CREATE INDEX leases_lane ON outbox.leases (topic, lane_endpoint, lease);
CREATE INDEX leases_endpoint ON outbox.leases (endpoint, lease);
COMMENT ON TABLE  outbox.leases      IS 'Private. One row for each claimed batch. Ids leave it as they are settled; with the last one the row goes.';
COMMENT ON COLUMN outbox.leases.ids  IS 'Ascending.';
COMMENT ON COLUMN outbox.leases.keys IS 'The ordering keys, in step with ids, an empty string for a row without one; an empty array if no row has one.';
COMMENT ON COLUMN outbox.leases.ready_end IS 'Its rows without a due time have seq up to this; NULL: its rows can be anywhere.';
COMMENT ON COLUMN outbox.leases.waiting_end IS '... and those with one are due up to then, and with that due time have seq up to waiting_end_seq.';
COMMENT ON COLUMN outbox.leases.hold IS 'A message of it that dies closes its key.';
COMMENT ON COLUMN outbox.leases.alone IS 'Holds one message that relays died with, so that the one that kills is found.';

CREATE TABLE outbox.held_keys (
    topic         text NOT NULL,
    lane_endpoint text NOT NULL,
    key           text NOT NULL,
    endpoint      text NOT NULL,
    id            uuid NOT NULL,
    seq           bigint NOT NULL,
    held_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, lane_endpoint, key)
);
COMMENT ON TABLE  outbox.held_keys          IS 'Private. Ordering keys that a dead head closes until it is replayed or discarded (policy hold).';
COMMENT ON COLUMN outbox.held_keys.endpoint IS 'Where the dead head was meant to go; empty if it died before fan-out, for all endpoints.';

-- A crash or a promotion empties an unlogged table. Lease numbers may come back then, and what relays remember of them is
-- void: each claim compares this word with the one that its relay registered under.
CREATE UNLOGGED TABLE outbox.epoch (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch    uuid NOT NULL DEFAULT gen_random_uuid()
);
COMMENT ON TABLE outbox.epoch IS 'Private. A word that changes when the server crashed or another one took over.';

-- === after delivery ===

CREATE TABLE outbox.attempts (
    started_at timestamptz NOT NULL,
    duration   interval NOT NULL,
    id         uuid NOT NULL,
    seq        bigint NOT NULL,
    generation integer NOT NULL,
    attempt    integer NOT NULL,
    status     integer,
    topic      text NOT NULL,
    endpoint   text NOT NULL,
    key        text,
    outcome    text NOT NULL,
    settlement text NOT NULL,
    reason     text,
    relay      text NOT NULL,
    error      text,
    response   text,
    request          jsonb,
    response_headers jsonb
) PARTITION BY RANGE (started_at);
CREATE INDEX attempts_id ON outbox.attempts (id, started_at);
CREATE INDEX attempts_started_at ON outbox.attempts (started_at);
-- What failed is searched for, and is little: a success does not pay for this.
CREATE INDEX attempts_failures ON outbox.attempts (started_at, endpoint) WHERE settlement <> 'delivered';
CREATE INDEX attempts_key ON outbox.attempts (key, started_at) WHERE key IS NOT NULL;
COMMENT ON TABLE  outbox.attempts            IS 'Public, read only. One row for each attempt, for each death without one, and for what operators did to a message, in daily partitions.';
COMMENT ON COLUMN outbox.attempts.outcome    IS 'What the other side did, as a class: success, redirect, unavailable, misconfigured, rejected, gone, proxy, dns, connect, connect_timeout, tls, reset, protocol, timeout, unsendable, aborted, exhausted, panicked; lost = its relay died; expired = none was made, its time was over; replayed, discarded, cancelled, key_released = an operator did that.';
COMMENT ON COLUMN outbox.attempts.settlement IS 'What followed: delivered, retry, put_off (a retry that uses no attempt), dead, undo (given up, and its saga goes back); or what an operator did.';
COMMENT ON COLUMN outbox.attempts.reason     IS 'Of a death: see dead_letters. Or why an operator did it.';
COMMENT ON COLUMN outbox.attempts.relay      IS 'The name of the relay, or of the operator.';
COMMENT ON COLUMN outbox.attempts.response   IS 'The beginning of the answer''s body; bytes that are no text are replaced.';
COMMENT ON COLUMN outbox.attempts.request    IS 'Where the endpoint keeps details: method, url without its query, headers without secrets, size in bytes and sha256 in hex of the body as it was sent.';
COMMENT ON COLUMN outbox.attempts.response_headers IS 'Where the endpoint keeps details: the answer''s headers, an object of strings.';

CREATE TABLE outbox.delivered (
    delivered_at timestamptz NOT NULL,
    created_at   timestamptz NOT NULL,
    id           uuid NOT NULL,
    seq          bigint NOT NULL,
    attempts     integer NOT NULL,
    lost         integer NOT NULL,
    generation   integer NOT NULL,
    size         integer NOT NULL,
    topic        text NOT NULL,
    lane_endpoint text NOT NULL,
    endpoint     text NOT NULL,
    key          text,
    type         text,
    content_type text,
    headers      jsonb,
    payload      json,
    body         bytea,
    sent_to      text,
    step         jsonb
) PARTITION BY RANGE (delivered_at);
CREATE INDEX delivered_id ON outbox.delivered (id);
CREATE INDEX delivered_delivered_at ON outbox.delivered (delivered_at);
COMMENT ON TABLE outbox.delivered IS 'Public, read only. Delivered messages, kept for replay, in daily partitions.';

CREATE TABLE outbox.dead_letters (
    id            uuid NOT NULL,
    lane_endpoint text NOT NULL,
    died_at       timestamptz NOT NULL,
    created_at    timestamptz NOT NULL,
    expires_at    timestamptz,
    seq           bigint NOT NULL,
    attempts      integer NOT NULL,
    lost          integer NOT NULL,
    throttled     integer NOT NULL,
    generation    integer NOT NULL,
    size          integer NOT NULL,
    status        integer,
    topic         text NOT NULL,
    endpoint      text NOT NULL,
    reason        text NOT NULL,
    key           text,
    type          text,
    content_type  text,
    headers       jsonb,
    payload       json,
    body          bytea,
    last_error    text,
    sent_to       text,
    step          jsonb,
    PRIMARY KEY (id, lane_endpoint)
);
CREATE INDEX dead_letters_died_at ON outbox.dead_letters (died_at, seq, id, lane_endpoint);
COMMENT ON TABLE  outbox.dead_letters        IS 'Public, read only. Messages given up on, kept until they are replayed or discarded.';
COMMENT ON COLUMN outbox.dead_letters.reason IS 'rejected, attempts, max_age, expired or lost.';

-- === what came over HTTP ===

CREATE TABLE outbox.requests (
    created_at timestamptz NOT NULL DEFAULT now(),
    id         uuid NOT NULL,
    caller     text NOT NULL,
    key        text NOT NULL,
    digest     bytea NOT NULL,
    PRIMARY KEY (caller, key),
    CONSTRAINT "Idempotency-Key: 1 to 255 bytes" CHECK (octet_length(key) BETWEEN 1 AND 255)
);
CREATE INDEX requests_created_at ON outbox.requests (created_at);
CREATE INDEX requests_id ON outbox.requests (id);
COMMENT ON TABLE  outbox.requests        IS 'Public, read only. Requests over HTTP that became messages, by the key of their caller: the same request again has the same answer.';
COMMENT ON COLUMN outbox.requests.caller IS 'Who sent it: a name of a file of callers, or webhook and its name. Its keys are its own.';
COMMENT ON COLUMN outbox.requests.digest IS 'SHA-256 of the body: another one under the same key is refused.';

-- === what comes by the clock ===

CREATE TABLE outbox.schedules (
    name       text PRIMARY KEY,
    fired_at   timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
COMMENT ON TABLE  outbox.schedules          IS 'Public, read only. Schedules of the configuration: the row''s lock lets one relay fire.';
COMMENT ON COLUMN outbox.schedules.fired_at IS 'All fire times up to then have their messages, or were left out. At first, when a relay saw the schedule.';

-- === what operators have running ===

CREATE TABLE outbox.jobs (
    job         bigint NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    -- what it is for
    since       timestamptz NOT NULL,
    until       timestamptz NOT NULL,
    verb        text NOT NULL CHECK (verb IN ('replay', 'discard')),
    source      text NOT NULL CHECK (source IN ('dead', 'delivered')),
    topic       text,
    endpoint    text,
    key         text,
    reason      text,
    status      integer,
    error       text,
    new_key     boolean NOT NULL,
    unattended  boolean NOT NULL,
    rate        double precision CHECK (rate BETWEEN 0.001 AND 1000000),
    -- how far it is
    state       text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'aborted')),
    done        bigint NOT NULL DEFAULT 0,
    pending     bigint NOT NULL DEFAULT 0,
    moved_at    timestamptz NOT NULL DEFAULT now(),
    next_at     timestamptz NOT NULL DEFAULT now(),
    cursor_at   timestamptz NOT NULL,
    cursor_seq  bigint NOT NULL DEFAULT 0,
    cursor_id   uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    cursor_lane text NOT NULL DEFAULT '',
    -- who, and why
    started_by  text NOT NULL,
    why         text
) WITH (fillfactor = 50);
COMMENT ON TABLE  outbox.jobs           IS 'Public, read only. Replays and discards of many messages: what they are for, and how far they are.';
COMMENT ON COLUMN outbox.jobs.unattended IS 'Relays see it through; else whoever began it does.';
COMMENT ON COLUMN outbox.jobs.done      IS 'Messages that were replayed or discarded.';
COMMENT ON COLUMN outbox.jobs.pending   IS 'Messages that were not replayed, because they are pending already.';
COMMENT ON COLUMN outbox.jobs.next_at   IS 'Its rate lets it go on then.';
COMMENT ON COLUMN outbox.jobs.cursor_at IS 'It has gone over all that died or was delivered before.';

-- === what is wrong ===

CREATE TABLE outbox.alerts (
    kind         text NOT NULL CHECK (kind IN ('failures', 'dead_letters', 'oldest_due', 'paused', 'no_route', 'sagas')),
    subject      text NOT NULL,
    firing_since timestamptz NOT NULL,
    webhook_told boolean NOT NULL,
    notified_at  timestamptz NOT NULL,
    clear_since  timestamptz,
    summary      text NOT NULL,
    command      text NOT NULL,
    details      jsonb NOT NULL,
    PRIMARY KEY (kind, subject)
) WITH (fillfactor = 50);
COMMENT ON TABLE  outbox.alerts             IS 'Public, read only. What is wrong: a row goes when it has been right again for a while.';
COMMENT ON COLUMN outbox.alerts.subject     IS 'The endpoint; of no_route the topic, or topic → endpoint, or saga and its name; of sagas the name.';
COMMENT ON COLUMN outbox.alerts.notified_at IS 'When somebody was told last.';
COMMENT ON COLUMN outbox.alerts.clear_since IS 'It has been right since; one that is right only now and then goes on as one alert.';
COMMENT ON COLUMN outbox.alerts.command     IS 'What to run next.';

CREATE TABLE outbox.notices (
    notice     uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    seq        bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    created_at timestamptz NOT NULL,
    not_before timestamptz NOT NULL,
    attempts   integer NOT NULL DEFAULT 0,
    kind       text NOT NULL,
    subject    text NOT NULL,
    content    json NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX notices_seq ON outbox.notices (seq);
COMMENT ON TABLE  outbox.notices            IS 'Private. What the webhook of [alerts] has yet to be told; a row goes when it was.';
COMMENT ON COLUMN outbox.notices.not_before IS 'Nobody sends it before: somebody does just now, or it failed.';

CREATE TABLE outbox.watching (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    watched_at timestamptz
);
COMMENT ON TABLE outbox.watching IS 'Private. When somebody looked last for what is wrong; its lock lets one look at a time.';
INSERT INTO outbox.watching DEFAULT VALUES;

-- === whose database this is ===

CREATE TABLE outbox.meta (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    system_identifier text,
    database          text NOT NULL,
    database_oid      oid NOT NULL,
    guard             text,
    doorbell          boolean,
    functions         text,
    accepted_at       timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE  outbox.meta       IS 'Private. The identity of the database that this outbox belongs to: a copy of it must not deliver.';
COMMENT ON COLUMN outbox.meta.database_oid IS 'Tells a dump that was restored under the same name on the same server.';
COMMENT ON COLUMN outbox.meta.guard IS 'Where set, only relays whose config says the same word deliver: tells a physical clone from the original.';
COMMENT ON COLUMN outbox.meta.doorbell IS 'Whether inserts may wake a relay; NULL = if the server allows no prepared transactions.';
COMMENT ON COLUMN outbox.meta.functions IS 'outbox.functions_digest() of the last migration: where it says another word now, somebody altered a function by hand.';

INSERT INTO outbox.migrations (version, name) VALUES (1, 'outbox');
