-- Active tasks and history are in separate tables, so that the active table stays small. Names are prefixed because the
-- queue may share the application's own file. Instants are milliseconds since the epoch, UTC.

CREATE TABLE taskmill_task (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    key TEXT,
    label TEXT,
    group_name TEXT NOT NULL,
    priority INTEGER NOT NULL,
    urgency INTEGER NOT NULL, -- the priority it runs at: its own, or that of a more urgent task which waits for it
    status TEXT NOT NULL CHECK (status IN ('pending', 'scheduled', 'blocked', 'running', 'paused', 'waiting')),
    stop TEXT CHECK (stop IN ('cancel', 'supersede', 'fail')), -- asked to stop, and why
    payload TEXT NOT NULL,
    tags TEXT,
    overrides TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    retries INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    interrupted INTEGER NOT NULL DEFAULT 0, -- started in time and stopped by no fault of its own: it runs on
    created_at INTEGER NOT NULL,
    queued_at INTEGER NOT NULL,
    renewed_at INTEGER, -- when aging began anew, of a task that stands in the place of another
    due_at INTEGER,
    due_is_relative INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER,
    started_at INTEGER,
    ttl_ms INTEGER,  -- starts to run with the first attempt
    parent_id INTEGER,
    children INTEGER NOT NULL DEFAULT 0,       -- how many it ever had
    children_ended INTEGER NOT NULL DEFAULT 0,
    children_after INTEGER NOT NULL DEFAULT 0, -- children with smaller ids belong to a run before it started over
    fail_fast INTEGER NOT NULL DEFAULT 1,      -- whether the failure of a child is its own
    max_children INTEGER,                      -- how many of its children may be in the queue at once
    held INTEGER NOT NULL DEFAULT 0,           -- waits until fewer of its siblings are in the queue
    on_parent_expiry TEXT CHECK (on_parent_expiry IN ('cancel')),
    outcome TEXT,                              -- [ending, result, error, duration_ms] it has once its children have ended
    finalizing INTEGER NOT NULL DEFAULT 0,     -- its handler is done; what is left to run is finalize
    awaited INTEGER NOT NULL DEFAULT 0,        -- other tasks depend on it
    on_dependency_failure TEXT CHECK (on_dependency_failure IN ('cancel', 'fail', 'ignore')),
    series_id INTEGER,                         -- the recurring series it is an occurrence of
    cron TEXT,                                 -- the cron task it is a firing of
    paused_at INTEGER,                         -- since when it is paused by itself, and not with others
    preempted INTEGER NOT NULL DEFAULT 0,      -- made way, and runs on: 1 for a more urgent task, 2 for pressure
    frozen INTEGER NOT NULL DEFAULT 0,         -- past its deadline, but paused with others: its time does not run
    gate_id INTEGER, -- the task whose attempt must have ended before this one may start
    saved TEXT,
    replaced TEXT,   -- what the task this one replaces had saved
    rerun TEXT,      -- [payload, expires_at]: run once more with these
    progress TEXT,
    io TEXT,         -- what it is expected to move: a budget, or `learn`
    actual_io TEXT,  -- what its last attempt has moved
    last_error TEXT
) STRICT;

-- The queue: one lane per group, urgency, type and whether aging began anew, oldest first.
CREATE INDEX taskmill_task_queue
    ON taskmill_task (group_name, urgency, type, renewed_at IS NOT NULL, queued_at, id)
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
        AND stop IS NULL AND interrupted = 0 AND frozen = 0;

CREATE TABLE taskmill_history (
    id INTEGER PRIMARY KEY,
    type TEXT NOT NULL,
    key TEXT,
    label TEXT,
    group_name TEXT NOT NULL,
    priority INTEGER NOT NULL,
    ending TEXT NOT NULL CHECK (ending IN (
        'completed', 'failed', 'dead_letter', 'cancelled', 'superseded', 'expired', 'dependency_failed')),
    payload TEXT NOT NULL,
    tags TEXT,
    overrides TEXT,
    attempt INTEGER NOT NULL,
    retries INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    due_at INTEGER,
    expires_at INTEGER,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    duration_ms INTEGER,
    parent_id INTEGER,
    series_id INTEGER,
    saved TEXT,
    progress TEXT,
    io TEXT,
    actual_io TEXT,
    last_error TEXT,
    result TEXT,
    error TEXT
) STRICT;

CREATE INDEX taskmill_history_ending ON taskmill_history (ending, ended_at, id);
CREATE INDEX taskmill_history_type ON taskmill_history (type, ended_at, id);
CREATE INDEX taskmill_history_child ON taskmill_history (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX taskmill_history_key ON taskmill_history (type, key, ended_at) WHERE key IS NOT NULL;

-- Dependencies between tasks. An edge is open until the task that it points at has ended; closed edges are kept for
-- graphs.
CREATE TABLE taskmill_dependency (
    task_id INTEGER NOT NULL,
    on_id INTEGER NOT NULL,
    open INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (task_id, on_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX taskmill_dependency_on ON taskmill_dependency (on_id, open);
CREATE INDEX taskmill_dependency_open ON taskmill_dependency (task_id) WHERE open = 1;

-- Recurring work: each occurrence is a task of its own, and one of them is always active.
CREATE TABLE taskmill_series (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    template TEXT NOT NULL,    -- the task each occurrence is made from
    every_ms INTEGER NOT NULL,
    first_at INTEGER NOT NULL, -- occurrences are due at first_at + n * every_ms
    due_at INTEGER NOT NULL,   -- the latest occurrence that was made
    ttl_ms INTEGER,
    runs INTEGER NOT NULL,     -- how many occurrences were made
    max_runs INTEGER,
    paused INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Cron tasks: their declarations and their state.
CREATE TABLE taskmill_cron (
    name TEXT PRIMARY KEY,
    position INTEGER NOT NULL, -- in the order of declaration
    type TEXT NOT NULL,        -- of its firings
    state TEXT NOT NULL,       -- settings and history, as JSON
    task_id INTEGER,           -- its firing that has not ended
    runs INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX taskmill_cron_firing ON taskmill_cron (task_id) WHERE task_id IS NOT NULL;

-- Controls of the scheduler, a domain, a group or a task type that were changed at run time: settings, pauses, rate
-- limits.
CREATE TABLE taskmill_control (
    kind TEXT NOT NULL CHECK (kind IN ('scheduler', 'domain', 'group', 'type')),
    name TEXT NOT NULL,
    change TEXT,           -- settings that differ from those the program declares
    paused_at INTEGER,
    resume_at INTEGER,     -- when the pause ends by itself
    resume_is_relative INTEGER NOT NULL DEFAULT 0, -- the pause has a length, and moves with the clock
    bucket TEXT,           -- what its rate limit has left: [level, at, unit]
    full_at INTEGER,       -- when the bucket is full again, as if nothing had been taken
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
-- Rows that hold nothing but a bucket: names come and go.
CREATE INDEX taskmill_control_full ON taskmill_control (full_at)
    WHERE full_at IS NOT NULL AND change IS NULL AND paused_at IS NULL;

-- Settings of the whole store: what its dispatcher declares, and a number that grows with each control.
CREATE TABLE taskmill_setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO taskmill_setting (name, value) VALUES ('controls_version', '0');

-- Tags as rows, so that tasks can be found by them; a task without tags has none here.
CREATE TABLE taskmill_task_tag (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    task_id INTEGER NOT NULL,
    PRIMARY KEY (name, value, task_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX taskmill_task_tag_task ON taskmill_task_tag (task_id);

CREATE TABLE taskmill_history_tag (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    task_id INTEGER NOT NULL,
    PRIMARY KEY (name, value, task_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX taskmill_history_tag_task ON taskmill_history_tag (task_id);

-- The number of tasks by ending: counts and statistics never scan history. `kept` of them are still in history.
CREATE TABLE taskmill_tally (
    type TEXT NOT NULL,
    group_name TEXT NOT NULL,
    ending TEXT NOT NULL,
    ended INTEGER NOT NULL,
    kept INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    PRIMARY KEY (type, group_name, ending)
) STRICT, WITHOUT ROWID;

-- The bytes that the runs of a task type have moved, as far as they were reported or measured.
CREATE TABLE taskmill_io (
    type TEXT PRIMARY KEY,
    runs INTEGER NOT NULL,
    disk_read INTEGER NOT NULL,
    disk_write INTEGER NOT NULL,
    net_rx INTEGER NOT NULL,
    net_tx INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Task types known to this file and their defaults, for processes that submit by name.
CREATE TABLE taskmill_type (
    name TEXT PRIMARY KEY,
    defaults TEXT NOT NULL
) STRICT, WITHOUT ROWID;
