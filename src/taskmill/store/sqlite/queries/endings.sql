-- name: record_endings
-- Write tasks to history, for rows of [id, ending, ended_at, duration_ms, result, error, attempt]. A row that names its
-- attempt is written only if that attempt still holds its token, the task was not asked to stop, and no other task is
-- linked to it; for rows without one the caller has checked this. With ?2 and ?3, a common ending and instant, rows of
-- [id] are enough.
INSERT INTO taskmill_history (
    id, type, key, label, group_name, priority, ending, payload, tags, overrides, attempt, retries, created_at,
    due_at, expires_at, started_at, ended_at, duration_ms, parent_id, series_id, saved, progress, io, actual_io, last_error,
    result, error
)
SELECT
    t.id, t.type, t.key, t.label, t.group_name, t.priority, coalesce(?2, given.value ->> 1), t.payload, t.tags, t.overrides,
    t.attempt, t.retries, t.created_at, t.due_at, t.expires_at, t.started_at,
    coalesce(?3, given.value ->> 2), CASE WHEN ?2 IS NULL THEN given.value ->> 3 END, t.parent_id, t.series_id, t.saved,
    t.progress, t.io, t.actual_io, t.last_error, CASE WHEN ?2 IS NULL THEN given.value ->> 4 END,
    CASE WHEN ?2 IS NULL THEN given.value ->> 5 END
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0
WHERE ?2 IS NOT NULL OR given.value ->> 6 IS NULL
    OR t.attempt = given.value ->> 6 AND t.status = 'running' AND t.stop IS NULL AND t.gave_key = 0
    AND t.parent_id IS NULL AND t.children = 0 AND t.awaited = 0 AND t.series_id IS NULL;

-- name: delete_active
DELETE FROM taskmill_task WHERE id IN (SELECT value FROM json_each(?1));

-- name: move_tags
INSERT INTO taskmill_history_tag (name, value, task_id)
SELECT name, value, task_id FROM taskmill_task_tag
WHERE task_id IN (SELECT value FROM json_each(?1));

-- name: delete_active_tags
DELETE FROM taskmill_task_tag WHERE task_id IN (SELECT value FROM json_each(?1));

-- name: tally
-- Add rows of [type, group, ending, count, duration_ms] to the tally.
INSERT INTO taskmill_tally (type, group_name, ending, ended, kept, duration_ms)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 3, value ->> 4 FROM json_each(?1) WHERE true
ON CONFLICT (type, group_name, ending) DO UPDATE SET
    ended = ended + excluded.ended, kept = kept + excluded.kept,
    duration_ms = duration_ms + excluded.duration_ms;

-- name: forget_damaged_counts
DELETE FROM taskmill_tally
WHERE typeof(type) <> 'text' OR typeof(group_name) <> 'text' OR typeof(ending) <> 'text' OR typeof(ended) <> 'integer'
    OR typeof(kept) <> 'integer' OR typeof(duration_ms) <> 'integer';

-- name: count_anew
-- Rebuild missing rows of the tally from history.
INSERT OR IGNORE INTO taskmill_tally (type, group_name, ending, ended, kept, duration_ms)
SELECT type, group_name, ending, count(*), count(*), coalesce(sum(duration_ms), 0) FROM taskmill_history
GROUP BY type, group_name, ending;

-- name: rebuild_indexes
-- In a damaged file the indexes may hold other values than the table; SQLite refuses to change such a row.
REINDEX taskmill_task;

-- name: sums_of_endings
-- Return tally rows for tasks in history of which only the ids are known.
SELECT json_group_array(json_array(type, group_name, ending, ended, duration_ms)) FROM (
    SELECT type, group_name, ending, count(*) AS ended, coalesce(sum(duration_ms), 0) AS duration_ms
    FROM taskmill_history WHERE id IN (SELECT value FROM json_each(?1))
    GROUP BY type, group_name, ending
);

-- name: gated
-- Return [ended task, task that waits for it] for the given tasks and their replacements or added runs.
SELECT json_group_array(json_array(gate_id, id)) FROM taskmill_task
WHERE gate_id IN (SELECT value FROM json_each(?1));

-- name: gates
-- Return [task, gate] of those of the given tasks that wait for another task to end.
SELECT json_group_array(json_array(id, gate_id)) FROM taskmill_task
WHERE id IN (SELECT value FROM json_each(?1)) AND gate_id IS NOT NULL;

-- name: open_gates
-- Clear the gates of tasks that waited for the given ended tasks. A replacement takes over what the replaced task saved
-- last.
UPDATE taskmill_task SET
    replaced = coalesce((
        SELECT saved FROM taskmill_history WHERE id = taskmill_task.gate_id AND ending = 'superseded'
    ), replaced),
    gate_id = NULL
WHERE gate_id IN (SELECT value FROM json_each(?1));

-- name: take_keys_back
-- Return the key to those of the given tasks whose added runs have all ended.
UPDATE taskmill_task SET gave_key = 0
WHERE id IN (SELECT value FROM json_each(?1)) AND gave_key = 1
    AND NOT EXISTS (SELECT 1 FROM taskmill_task AS added WHERE added.gate_id = taskmill_task.id);

-- name: ties
-- Return which kinds of links exist at all: replacements, dependents, parents, series, cron firings. Most stores have
-- none, and one look at an empty index costs less than many.
SELECT json_array(
    EXISTS (SELECT 1 FROM taskmill_task WHERE gate_id IS NOT NULL),
    EXISTS (SELECT 1 FROM taskmill_dependency WHERE open = 1),
    true,
    EXISTS (SELECT 1 FROM taskmill_series),
    EXISTS (SELECT 1 FROM taskmill_cron WHERE task_id IS NOT NULL)
);
