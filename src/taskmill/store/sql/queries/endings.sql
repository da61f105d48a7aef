-- name: record_endings
-- Write tasks to history. A row that names its attempt is written only if that attempt still holds its token, the task
-- was not asked to stop, and no other task is linked to it; for rows without one the caller has checked this. With $2,
-- $3 and $4, the ending, the instant and the result that all of the tasks have, those of the rows do not count. The row
-- of a prefetched task has no start yet; if it ends before it began, its claim does not count as an attempt.
-- sqlite:
INSERT INTO taskmill_history (
    id, type, key, label, group_name, priority, ending, payload, tags, overrides, attempt, retries, created_at,
    due_at, expires_at, started_at, ended_at, duration_ms, parent_id, series_id, saved, progress, io, actual_io, last_error,
    result, error, replaced
)
SELECT
    t.id, t.type, t.key, t.label, t.group_name, t.priority, coalesce($2, given.ending), t.payload, t.tags, t.overrides,
    t.attempt - CASE WHEN t.status = 'running' AND t.started_at IS NULL AND given.began_at IS NULL THEN 1 ELSE 0 END,
    t.retries, t.created_at, t.due_at, t.expires_at,
    coalesce(t.started_at, given.began_at), coalesce($3, given.ended_at), given.duration_ms, t.parent_id, t.series_id,
    t.saved, t.progress, t.io, t.actual_io, t.last_error, CASE WHEN $2 IS NULL THEN given.result ELSE $4 END,
    CASE WHEN $2 IS NULL THEN given.error END,
    CASE WHEN coalesce($2, given.ending) = 'dead_letter' THEN t.replaced END
FROM rows($1,
    id bigint, ending text, ended_at bigint, duration_ms bigint, result text, error text, attempt integer,
    began_at bigint
) AS given
JOIN taskmill_task AS t ON t.id = given.id
WHERE CASE given.attempt
    WHEN t.attempt THEN t.status = 'running' AND t.stop IS NULL AND t.gave_key = false AND t.parent_id IS NULL
        AND t.children = 0 AND t.awaited = false AND t.series_id IS NULL
    ELSE given.attempt IS NULL END;
-- postgres: the rows are also deleted, and the tally is updated, in one of 64 shards and in a fixed order, so that
-- transactions rarely wait for each other and cannot deadlock.
WITH given AS MATERIALIZED (
    SELECT
        id, coalesce($2::text, ending) AS ending, coalesce($3::bigint, ended_at) AS ended_at, duration_ms,
        coalesce($4::text, result) AS result, error, attempt, began_at
    FROM rows($1,
        id bigint, ending text, ended_at bigint, duration_ms bigint, result text, error text, attempt integer,
        began_at bigint
    ) AS given
), gone AS (
    DELETE FROM taskmill_task AS t USING given
    WHERE t.id = given.id AND (
        given.attempt IS NULL
        OR t.attempt = given.attempt AND t.status = 'running' AND t.stop IS NULL AND NOT t.gave_key
        AND t.parent_id IS NULL AND t.children = 0 AND NOT t.awaited AND t.series_id IS NULL)
    RETURNING
        t.id, t.type, t.key, t.label, t.group_name, t.priority, given.ending, t.payload, t.tags, t.overrides,
        t.attempt - CASE WHEN t.status = 'running' AND t.started_at IS NULL AND given.began_at IS NULL THEN 1 ELSE 0 END,
        t.retries, t.created_at, t.due_at, t.expires_at, coalesce(t.started_at, given.began_at), given.ended_at, given.duration_ms,
        t.parent_id,
        t.series_id, t.saved, t.progress, t.io, t.actual_io, t.last_error, given.result, given.error,
        CASE WHEN given.ending = 'dead_letter' THEN t.replaced END
), counted AS (
    INSERT INTO taskmill_tally AS tally (type, group_name, ending, ended, kept, duration_ms, shard)
    SELECT type, group_name, ending, count(*), count(*), coalesce(sum(duration_ms), 0), pg_backend_pid() % 64
    FROM gone GROUP BY type, group_name, ending ORDER BY type, group_name, ending
    ON CONFLICT (type, group_name, ending, shard) DO UPDATE SET
        ended = tally.ended + excluded.ended, kept = tally.kept + excluded.kept,
        duration_ms = tally.duration_ms + excluded.duration_ms
)
INSERT INTO taskmill_history (
    id, type, key, label, group_name, priority, ending, payload, tags, overrides, attempt, retries, created_at,
    due_at, expires_at, started_at, ended_at, duration_ms, parent_id, series_id, saved, progress, io, actual_io, last_error,
    result, error, replaced
)
SELECT * FROM gone;

-- name: delete_active
-- sqlite:
DELETE FROM taskmill_task WHERE id IN ids($1);
-- postgres: nothing to do; record_endings has deleted the rows.

-- name: move_tags
INSERT INTO taskmill_history_tag (name, value, task_id)
SELECT name, value, task_id FROM taskmill_task_tag
WHERE task_id IN ids($1);

-- name: delete_active_tags
DELETE FROM taskmill_task_tag WHERE task_id IN ids($1);

-- name: tally
-- Add ended tasks to the tally.
-- sqlite:
INSERT INTO taskmill_tally (type, group_name, ending, ended, kept, duration_ms)
SELECT type, group_name, ending, n, n, duration_ms
FROM rows($1, type text, group_name text, ending text, n integer, duration_ms bigint) AS given WHERE true
ON CONFLICT (type, group_name, ending) DO UPDATE SET
    ended = ended + excluded.ended, kept = kept + excluded.kept,
    duration_ms = duration_ms + excluded.duration_ms;
-- postgres: nothing to do; record_endings has updated the tally.

-- name: forget_damaged_counts
-- sqlite:
DELETE FROM taskmill_tally
WHERE typeof(type) <> 'text' OR typeof(group_name) <> 'text' OR typeof(ending) <> 'text' OR typeof(ended) <> 'integer'
    OR typeof(kept) <> 'integer' OR typeof(duration_ms) <> 'integer';
-- postgres: nothing is damaged; the server enforces the types of its columns.
DELETE FROM taskmill_tally WHERE false;

-- name: count_anew
-- Rebuild missing rows of the tally from history.
-- sqlite:
INSERT OR IGNORE INTO taskmill_tally (type, group_name, ending, ended, kept, duration_ms)
SELECT type, group_name, ending, count(*), count(*), coalesce(sum(duration_ms), 0) FROM taskmill_history
GROUP BY type, group_name, ending;
-- postgres: nothing to do.

-- name: rebuild_indexes
-- sqlite: in a damaged file the indexes may hold other values than the table; SQLite refuses to change such a row.
REINDEX taskmill_task;
-- postgres: nothing to do.

-- name: sums_of_endings
-- Return tally rows for tasks in history of which only the ids are known.
SELECT json_list(json_row(type, group_name, ending, ended, duration_ms)) FROM (
    SELECT type, group_name, ending, count(*) AS ended, coalesce(sum(duration_ms), 0) AS duration_ms
    FROM taskmill_history WHERE id IN ids($1)
    GROUP BY type, group_name, ending
) AS sums;

-- name: gated
-- Return [ended task, task that waits for it] for the given tasks and their replacements or added runs.
SELECT json_list(json_row(gate_id, id) ORDER BY id) FROM taskmill_task
WHERE gate_id IS NOT NULL AND gate_id IN ids($1);

-- name: gates
-- Return [task, gate] of those of the given tasks that wait for another task to end.
SELECT json_list(json_row(id, gate_id)) FROM taskmill_task
WHERE id IN ids($1) AND gate_id IS NOT NULL;

-- name: open_gates
-- Clear the gates of tasks that waited for the given ended tasks. A replacement takes over what the replaced task saved
-- last.
UPDATE taskmill_task SET
    replaced = coalesce((
        SELECT h.saved FROM taskmill_history AS h WHERE h.id = taskmill_task.gate_id AND h.ending = 'superseded'
    ), replaced),
    gate_id = NULL
WHERE gate_id IS NOT NULL AND gate_id IN ids($1);

-- name: take_keys_back
-- Return the key to those of the given tasks whose added runs have all ended.
UPDATE taskmill_task SET gave_key = false
WHERE id IN ids($1) AND gave_key = true
    AND NOT EXISTS (SELECT 1 FROM taskmill_task AS added WHERE added.gate_id = taskmill_task.id);

-- name: ties
-- Return which kinds of links exist at all: replacements, dependents, parents, series, cron firings. Most stores have
-- none, and one look at an empty index costs less than many.
SELECT json_row(
    EXISTS (SELECT 1 FROM taskmill_task WHERE gate_id IS NOT NULL),
    EXISTS (SELECT 1 FROM taskmill_dependency WHERE open = true),
    true,
    EXISTS (SELECT 1 FROM taskmill_series),
    EXISTS (SELECT 1 FROM taskmill_cron WHERE task_id IS NOT NULL)
);
