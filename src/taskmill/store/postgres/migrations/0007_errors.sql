-- What went wrong: one row for each attempt that failed, exceeded its timeout, gave up or crashed. A task that succeeds at
-- once has none. The rows of a task are deleted with its row of history.
CREATE TABLE taskmill_error (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    at bigint NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('failed', 'timeout', 'crashed', 'gave_up')),
    type text COLLATE "C" NOT NULL,
    exception text COLLATE "C" NOT NULL, -- the name of its class; the kind if there was no exception
    location text COLLATE "C" NOT NULL,  -- where it was raised; empty if unknown
    error text NOT NULL,
    traceback text,
    node text,                           -- the node that ran the attempt
    duration_ms bigint,
    retry_ms bigint,                     -- the delay before the retry; NULL if no retry follows
    PRIMARY KEY (task_id, attempt)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);
-- Groups of errors are counted, and their tasks found, in the indexes alone: the rows are large.
CREATE INDEX taskmill_error_group ON taskmill_error (exception, location, type, at, task_id);
CREATE INDEX taskmill_error_at ON taskmill_error (at, exception, location, type);
