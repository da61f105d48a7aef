-- Active tasks and history are in separate tables, so that the active table stays small. Names are prefixed because the
-- queue may share the application's own database. Instants are milliseconds since the epoch, UTC. The tables, their
-- columns and the order of these are those of the SQLite store, which a test checks; the tables that only a cluster
-- needs come at the end. Texts are compared and sorted by their bytes, whatever the language of the database.

-- Ids are taken from here in runs: see taskmill_take_ids.
CREATE SEQUENCE taskmill_task_id;

CREATE TABLE taskmill_task (
    id bigint PRIMARY KEY,
    type text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    label text,
    group_name text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    urgency smallint NOT NULL, -- the priority it runs at: its own, or that of a more urgent task which waits for it
    status text COLLATE "C" NOT NULL CHECK (status IN ('pending', 'scheduled', 'blocked', 'running', 'paused', 'waiting')),
    stop text CHECK (stop IN ('cancel', 'supersede', 'fail')), -- asked to stop, and why
    payload text NOT NULL,
    tags text,
    overrides text,
    attempt integer NOT NULL DEFAULT 0,
    retries integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    interrupted boolean NOT NULL DEFAULT false, -- started in time and stopped by no fault of its own: it runs on
    created_at bigint NOT NULL,
    queued_at bigint NOT NULL,
    renewed_at bigint, -- when aging began anew, of a task that stands in the place of another
    due_at bigint,
    due_is_relative boolean NOT NULL DEFAULT false,
    expires_at bigint,
    started_at bigint,
    ttl_ms bigint,  -- starts to run with the first attempt
    parent_id bigint,
    children integer NOT NULL DEFAULT 0,       -- how many it ever had
    children_ended integer NOT NULL DEFAULT 0,
    children_after bigint NOT NULL DEFAULT 0, -- children with smaller ids belong to a run before it started over
    fail_fast boolean NOT NULL DEFAULT true,      -- whether the failure of a child is its own
    max_children integer,                      -- how many of its children may be in the queue at once
    held boolean NOT NULL DEFAULT false,           -- waits until fewer of its siblings are in the queue
    on_parent_expiry text CHECK (on_parent_expiry IN ('cancel')),
    outcome text,                              -- [ending, result, error, duration_ms] it has once its children have ended
    finalizing boolean NOT NULL DEFAULT false,     -- its handler is done; what is left to run is finalize
    awaited boolean NOT NULL DEFAULT false,        -- other tasks depend on it
    on_dependency_failure text CHECK (on_dependency_failure IN ('cancel', 'fail', 'ignore')),
    series_id bigint,                         -- the recurring series it is an occurrence of
    cron text,                                 -- the cron task it is a firing of
    paused_at bigint,                         -- since when it is paused by itself, and not with others
    preempted smallint NOT NULL DEFAULT 0,     -- made way, and runs on: 1 for a more urgent task, 2 for pressure
    frozen boolean NOT NULL DEFAULT false,         -- past its deadline, but paused with others: its time does not run
    gate_id bigint, -- the task whose attempt must have ended before this one may start
    saved text,
    replaced text,   -- what the task this one replaces had saved
    rerun text,      -- [payload, expires_at]: run once more with these
    progress text,
    io text,         -- what it is expected to move: a budget, or `learn`
    actual_io text,  -- what its last attempt has moved
    last_error text,
    node_id bigint                             -- the node that runs it, while it is running; 0: it had stopped in order
);

-- The queue: one lane per group, urgency, type and whether aging began anew, oldest first.
CREATE INDEX taskmill_task_queue
    ON taskmill_task (group_name, urgency, type, (renewed_at IS NOT NULL), queued_at, id)
    WHERE status = 'pending' AND stop IS NULL;
-- Tasks that were asked to stop and have nothing left to wait for but their hook.
CREATE INDEX taskmill_task_hook ON taskmill_task (id) WHERE status = 'pending' AND stop IS NOT NULL;
CREATE INDEX taskmill_task_due ON taskmill_task (due_at) WHERE status = 'scheduled';
CREATE INDEX taskmill_task_running ON taskmill_task (id) WHERE status = 'running';
CREATE INDEX taskmill_task_paused ON taskmill_task (id) WHERE status = 'paused';
CREATE INDEX taskmill_task_waiting ON taskmill_task (id) WHERE status = 'waiting';
CREATE INDEX taskmill_task_child ON taskmill_task (parent_id, held, urgency, id) WHERE parent_id IS NOT NULL;
CREATE INDEX taskmill_task_series ON taskmill_task (series_id) WHERE series_id IS NOT NULL;
-- A key is held by one task; one that was asked to stop has given it up, but its successor waits for it.
CREATE UNIQUE INDEX taskmill_task_key ON taskmill_task (type, key) WHERE key IS NOT NULL AND stop IS NULL;
CREATE INDEX taskmill_task_stopping ON taskmill_task (type, key) WHERE key IS NOT NULL AND stop IS NOT NULL;
CREATE INDEX taskmill_task_gate ON taskmill_task (gate_id) WHERE gate_id IS NOT NULL;
CREATE INDEX taskmill_task_expiry ON taskmill_task (expires_at)
    WHERE expires_at IS NOT NULL AND status IN ('pending', 'scheduled', 'blocked')
        AND stop IS NULL AND NOT interrupted AND NOT frozen;

CREATE TABLE taskmill_history (
    id bigint PRIMARY KEY,
    type text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    label text,
    group_name text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    ending text COLLATE "C" NOT NULL CHECK (ending IN (
        'completed', 'failed', 'dead_letter', 'cancelled', 'superseded', 'expired', 'dependency_failed')),
    payload text NOT NULL,
    tags text,
    overrides text,
    attempt integer NOT NULL,
    retries integer NOT NULL,
    created_at bigint NOT NULL,
    due_at bigint,
    expires_at bigint,
    started_at bigint,
    ended_at bigint NOT NULL,
    duration_ms bigint,
    parent_id bigint,
    series_id bigint,
    saved text,
    progress text,
    io text,
    actual_io text,
    last_error text,
    result text,
    error text
);

CREATE INDEX taskmill_history_ending ON taskmill_history (ending, ended_at, id);
CREATE INDEX taskmill_history_type ON taskmill_history (type, ended_at, id);
CREATE INDEX taskmill_history_child ON taskmill_history (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX taskmill_history_key ON taskmill_history (type, key, ended_at) WHERE key IS NOT NULL;

-- Dependencies between tasks. An edge is open until the task that it points at has ended; closed edges are kept for
-- graphs.
CREATE TABLE taskmill_dependency (
    task_id bigint NOT NULL,
    on_id bigint NOT NULL,
    open boolean NOT NULL DEFAULT true,
    PRIMARY KEY (task_id, on_id)
);
CREATE INDEX taskmill_dependency_on ON taskmill_dependency (on_id, open);
CREATE INDEX taskmill_dependency_open ON taskmill_dependency (task_id) WHERE open;

-- Recurring work: each occurrence is a task of its own, and one of them is always active.
CREATE TABLE taskmill_series (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    template text NOT NULL,    -- the task each occurrence is made from
    every_ms bigint NOT NULL,
    first_at bigint NOT NULL, -- occurrences are due at first_at + n * every_ms
    due_at bigint NOT NULL,   -- the latest occurrence that was made
    ttl_ms bigint,
    runs bigint NOT NULL,     -- how many occurrences were made
    max_runs bigint,
    paused boolean NOT NULL DEFAULT false
);

-- Cron tasks: their declarations and their state.
CREATE TABLE taskmill_cron (
    name text COLLATE "C" PRIMARY KEY,
    position integer NOT NULL, -- in the order of declaration
    type text COLLATE "C" NOT NULL, -- of its firings
    state text NOT NULL,       -- settings and history, as JSON
    task_id bigint,            -- its firing that has not ended
    runs bigint NOT NULL DEFAULT 0
);
CREATE INDEX taskmill_cron_firing ON taskmill_cron (task_id) WHERE task_id IS NOT NULL;

-- Controls of the scheduler, a domain, a group or a task type that were changed at run time: settings, pauses, rate
-- limits.
CREATE TABLE taskmill_control (
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('scheduler', 'domain', 'group', 'type')),
    name text COLLATE "C" NOT NULL,
    change text,           -- settings that differ from those the program declares
    paused_at bigint,
    resume_at bigint,     -- when the pause ends by itself
    resume_is_relative boolean NOT NULL DEFAULT false, -- the pause has a length, and moves with the clock
    bucket text,           -- what its rate limit has left: [level, at, unit]
    full_at bigint,        -- when the bucket is full again, as if nothing had been taken
    PRIMARY KEY (kind, name)
);
-- Rows that hold nothing but a bucket: names come and go.
CREATE INDEX taskmill_control_full ON taskmill_control (full_at)
    WHERE full_at IS NOT NULL AND change IS NULL AND paused_at IS NULL;

-- Settings of the whole store: what its dispatcher declares, and a number that grows with each control.
CREATE TABLE taskmill_setting (
    name text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C" NOT NULL
);
INSERT INTO taskmill_setting (name, value) VALUES ('controls_version', '0');

-- Tags as rows, so that tasks can be found by them; a task without tags has none here.
CREATE TABLE taskmill_task_tag (
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    task_id bigint NOT NULL,
    PRIMARY KEY (name, value, task_id)
);
CREATE INDEX taskmill_task_tag_task ON taskmill_task_tag (task_id);

CREATE TABLE taskmill_history_tag (
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    task_id bigint NOT NULL,
    PRIMARY KEY (name, value, task_id)
);
CREATE INDEX taskmill_history_tag_task ON taskmill_history_tag (task_id);

-- The number of tasks by ending: counts and statistics never scan history. `kept` of them are still in history.
CREATE TABLE taskmill_tally (
    type text COLLATE "C" NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    ending text COLLATE "C" NOT NULL,
    ended bigint NOT NULL,
    kept bigint NOT NULL,
    duration_ms bigint NOT NULL,
    shard smallint NOT NULL, -- nodes add to rows of their own, so that they need not wait for each other
    PRIMARY KEY (type, group_name, ending, shard)
);

-- The bytes that the runs of a task type have moved, as far as they were reported or measured.
CREATE TABLE taskmill_io (
    type text COLLATE "C" PRIMARY KEY,
    runs bigint NOT NULL,
    disk_read bigint NOT NULL,
    disk_write bigint NOT NULL,
    net_rx bigint NOT NULL,
    net_tx bigint NOT NULL
);

-- Task types known to this file and their defaults, for processes that submit by name.
CREATE TABLE taskmill_type (
    name text COLLATE "C" PRIMARY KEY,
    defaults text NOT NULL
);

-- Tables that only a cluster needs.

-- The schedulers that dispatch. A node that was not seen for a while, by the clock of the database, is dead, and its tasks
-- return to the queue.
CREATE TABLE taskmill_node (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    slots bigint NOT NULL DEFAULT 0, -- how many tasks it may run at once
    types text NOT NULL DEFAULT '[]', -- of tasks that it can run
    machine text, -- what it has last seen of its machine, if it watches that
    stopped boolean NOT NULL DEFAULT false, -- whether it has stopped in order, and only waits for handlers that would not
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- '-infinity': it has left, and its tasks are to be returned
    entered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Holds no rows. Each writing transaction locks it: in mode SHARE if it affects no other writer, otherwise in mode
-- EXCLUSIVE.
CREATE TABLE taskmill_writing ();

-- The last mark of each writer shows whether a commit that was cut off has succeeded. Transaction ids cannot show it: a
-- server that has crashed assigns those of unfinished transactions again.
CREATE TABLE taskmill_commit (
    writer text COLLATE "C" PRIMARY KEY,
    mark bigint NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Grows with every commit that other nodes may have to know of.
CREATE SEQUENCE taskmill_change;

-- Reserves consecutive ids and returns the first. A sequence alone would mix those of two sessions. The lock is held
-- for this moment only, not until the end of the transaction, which may be a caller's own and long.
CREATE FUNCTION taskmill_take_ids(wanted bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    lock_key CONSTANT bigint := (1952541547::bigint << 32) | 'taskmill_task_id'::regclass::oid::bigint;
    first bigint;
BEGIN
    PERFORM pg_advisory_lock(lock_key);
    first := nextval('taskmill_task_id');
    IF wanted > 1 THEN
        PERFORM setval('taskmill_task_id', first + wanted - 1);
    END IF;
    PERFORM pg_advisory_unlock(lock_key);
    RETURN first;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    PERFORM pg_advisory_unlock(lock_key);
    RAISE;
END $$;

-- A JSON array of integers as an array: '[1,2]' becomes '{1,2}'.
CREATE FUNCTION taskmill_ids(list text) RETURNS bigint[] LANGUAGE sql STABLE AS $$
    SELECT translate(list, '[]', '{}')::bigint[]
$$;

-- Rows of the queue are short-lived: a task leaves three dead rows behind. With the server's default settings, a fifth
-- of a table would have to be dead before a vacuum, and every claim would scan past the dead rows. If an update changes
-- no indexed column, free space on the page keeps the new version of a row beside the old one, which is then removed
-- without a vacuum.
ALTER TABLE taskmill_task SET (
    fillfactor = 80, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_threshold = 500, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE taskmill_task_tag SET (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE taskmill_dependency SET (
    fillfactor = 90, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE taskmill_history SET (
    autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_threshold = 10000, autovacuum_vacuum_insert_scale_factor = 0.05);
ALTER TABLE taskmill_history_tag SET (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.05);
-- A few rows each, changed all the time.
ALTER TABLE taskmill_commit SET (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE taskmill_node SET (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE taskmill_tally SET (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE taskmill_control SET (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE taskmill_setting SET (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE taskmill_io SET (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE taskmill_cron SET (fillfactor = 70, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE taskmill_series SET (fillfactor = 80, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);
