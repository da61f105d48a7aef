-- What went wrong: one row for each attempt that failed, exceeded its timeout, gave up or crashed. A task that succeeds at
-- once has none. The rows of a task are deleted with its row of history.
CREATE TABLE taskmill_error (
    task_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('failed', 'timeout', 'crashed', 'gave_up')),
    type TEXT NOT NULL,
    exception TEXT NOT NULL, -- the name of its class; the kind if there was no exception
    location TEXT NOT NULL,  -- where it was raised; empty if unknown
    error TEXT NOT NULL,
    traceback TEXT,
    node TEXT,               -- the node that ran the attempt
    duration_ms INTEGER,
    retry_ms INTEGER,        -- the delay before the retry; NULL if no retry follows
    PRIMARY KEY (task_id, attempt)
) STRICT;
-- Groups of errors are counted, and their tasks found, in the indexes alone: the rows are large.
CREATE INDEX taskmill_error_group ON taskmill_error (exception, location, type, at, task_id);
CREATE INDEX taskmill_error_at ON taskmill_error (at, exception, location, type);
