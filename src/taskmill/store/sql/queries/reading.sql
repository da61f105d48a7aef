-- name: active_rows
-- Return records of active tasks. A parent also has [children, ended children, sum of the fractions reported by the
-- live ones]. A running task also has the mean duration of successful tasks of its type, in milliseconds. Then comes
-- true if its deadline still applies, and the errors of its attempts. The caller fills in {where} and {order}.
SELECT json_list(record::json) FROM (
    SELECT json_row(
        id, type, key, label, group_name, priority, payload, tags, {attempts_begun}, retries, created_at, due_at,
        expires_at, started_at, parent_id, progress, last_error, io, {status_begun}, urgency,
        (CASE WHEN children > 0 THEN json_row(children, children_ended, (
            SELECT sum((child.progress::json ->> 'fraction')::float8) FROM taskmill_task AS child
            WHERE child.parent_id = t.id AND child.progress IS NOT NULL)) END)::json,
        coalesce(renewed_at, queued_at), paused_at, {clock_from},
        CASE WHEN status = 'running' THEN (
            SELECT (sum(duration_ms) * 1.0 / nullif(sum(ended), 0))::float8 FROM taskmill_tally
            WHERE taskmill_tally.type = t.type AND ending = 'completed') END,
        ({may_expire})::int,
        (CASE WHEN attempt > 1 OR (attempt = 1 AND status <> 'running') THEN {errors} END)::json
    ) AS record
    FROM taskmill_task AS t WHERE {where} {order}
) AS records;

-- name: history_rows
-- Return records of ended tasks. The caller fills in {where} and {order}.
SELECT json_list(record::json) FROM (
    SELECT json_row(
        id, type, key, label, group_name, priority, payload, tags, attempt, retries, created_at, due_at, expires_at,
        started_at, parent_id, progress, last_error, io, ending, ended_at, duration_ms, result, error, actual_io,
        (CASE WHEN attempt > 1 OR (attempt = 1 AND ending <> 'completed') THEN {errors} END)::json
    ) AS record
    FROM taskmill_history WHERE {where} {order}
) AS records;

-- name: with_expired
-- A WITH clause to put before a statement about history: it adds expired tasks that are not in history yet.
WITH taskmill_history AS NOT MATERIALIZED (
    SELECT
        id, type, key, label, group_name, priority, payload, tags, attempt, retries, created_at, due_at, expires_at,
        started_at, parent_id, progress, last_error, io, ending, ended_at, duration_ms, result, error, actual_io
    FROM {stored}taskmill_history
    UNION ALL
    SELECT
        id, type, key, label, group_name, priority, payload, tags, attempt, retries, created_at, due_at, expires_at,
        started_at, parent_id, progress, last_error, io, 'expired', expires_at, NULL::bigint, NULL::text, NULL::text,
        actual_io
    FROM taskmill_task AS t WHERE {is_expired}
), taskmill_history_tag AS NOT MATERIALIZED (
    SELECT name, value, task_id FROM {stored}taskmill_history_tag
    UNION ALL
    SELECT name, value, task_id FROM taskmill_task_tag
);

-- name: has_expired
-- True if any task has expired and is not in history yet.
SELECT EXISTS (SELECT 1 FROM taskmill_task AS t WHERE {is_expired});

-- name: shown_status
-- Fragment: the status to show for an active task. It is 'pending' for a prefetched task that has not begun, 'paused' for
-- a pending task whose scheduler, domain or group is paused, and 'expired' for a task that has expired and is not in
-- history yet.
CASE WHEN {is_expired} THEN 'expired' WHEN {is_prefetched} THEN 'pending' WHEN status = 'pending' AND EXISTS (
    SELECT 1 FROM taskmill_control AS control
    WHERE {pauses_it} AND (control.resume_at IS NULL OR control.resume_at > {now}::bigint)
) THEN 'paused' ELSE status END;

-- name: plain_status
-- Fragment: the same while nothing is paused and nothing has expired.
{status_begun};

-- name: among_ids
-- Fragment: the tasks of a list of ids.
id IN ids(?);

-- name: ended_counts
SELECT json_map(ending, n) FROM (
    SELECT ending, sum(kept) AS n FROM taskmill_tally GROUP BY ending
) AS counted;

-- name: stats
-- Return [number of tasks, total duration in ms] for each ending of a type.
SELECT json_map(ending, json_row(n, ms)) FROM (
    SELECT ending, sum(ended) AS n, sum(duration_ms) AS ms FROM taskmill_tally WHERE type = $1 GROUP BY ending
) AS counted;

-- name: tag_values
SELECT value, count(*) FROM taskmill_task_tag WHERE name = $1 GROUP BY value ORDER BY 2 DESC, 1;

-- name: tag_values_unexpired
-- The same without the tasks that have expired and are not in history yet.
SELECT value, count(*) FROM taskmill_task_tag AS tagged
WHERE name = ? AND NOT EXISTS (SELECT 1 FROM taskmill_task AS t WHERE t.id = tagged.task_id AND {is_expired})
GROUP BY value ORDER BY 2 DESC, 1;

-- name: ended_among
SELECT json_list(id ORDER BY id) FROM taskmill_history WHERE id IN ids($1);

-- name: running_elsewhere
-- Return [id, attempt, started_at, progress] of the tasks that run on nodes other than $1 and have begun.
-- sqlite: one process runs tasks; if it is this one, $1 is not null.
SELECT json_list(json_row(id, attempt, started_at, progress))
FROM taskmill_task WHERE status = 'running' AND started_at IS NOT NULL AND $1 IS NULL;
-- postgres:
SELECT json_list(json_row(id, attempt, started_at, progress) ORDER BY id)
FROM taskmill_task WHERE status = 'running' AND started_at IS NOT NULL AND node_id IS DISTINCT FROM $1::bigint;

-- name: count_ended_since
-- Count the tasks that ended at $1 or later. Each kind of ending has its own part of the index.
SELECT sum(n)::bigint FROM (
    SELECT count(*) AS n FROM taskmill_history WHERE ending = 'completed' AND ended_at >= $1
    UNION ALL
    SELECT count(*) AS n FROM taskmill_history WHERE ending = 'failed' AND ended_at >= $1
    UNION ALL
    SELECT count(*) AS n FROM taskmill_history WHERE ending = 'dead_letter' AND ended_at >= $1
    UNION ALL
    SELECT count(*) AS n FROM taskmill_history WHERE ending = 'cancelled' AND ended_at >= $1
    UNION ALL
    SELECT count(*) AS n FROM taskmill_history WHERE ending = 'superseded' AND ended_at >= $1
    UNION ALL
    SELECT count(*) AS n FROM taskmill_history WHERE ending = 'expired' AND ended_at >= $1
    UNION ALL
    SELECT count(*) AS n FROM taskmill_history WHERE ending = 'dependency_failed' AND ended_at >= $1
) AS counted;
