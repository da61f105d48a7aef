-- name: active_rows
-- Records of active tasks. Of a parent also [children, ended, the sum of the fractions that the others have reported]; last
-- where its time-to-live counts from: its submission, that of an occurrence from when it is due. Of what was due at once
-- the place in the queue tells, which steps of the clock have moved. {where} and {order} are put in from fragments.
SELECT coalesce(json_agg(row), '[]') FROM (
    SELECT json_build_array(
        id, type, key, label, group_name, priority, payload, tags, attempt, retries, created_at, due_at, expires_at,
        started_at, parent_id, progress, last_error, status, urgency,
        CASE WHEN children > 0 THEN json_build_array(children, children_ended, (
            SELECT sum((child.progress::json ->> 'fraction')::float8) FROM taskmill_task AS child
            WHERE child.parent_id = taskmill_task.id AND child.progress IS NOT NULL)) END,
        coalesce(renewed_at, queued_at), paused_at,
        CASE WHEN due_at IS NULL OR attempt > 0 THEN coalesce(renewed_at, queued_at)
            WHEN series_id IS NOT NULL THEN due_at ELSE created_at END
    ) AS row
    FROM taskmill_task WHERE {where} {order}
) AS rows;

-- name: history_rows
-- Records of ended tasks.
SELECT coalesce(json_agg(row), '[]') FROM (
    SELECT json_build_array(
        id, type, key, label, group_name, priority, payload, tags, attempt, retries, created_at, due_at, expires_at,
        started_at, parent_id, progress, last_error, ending, ended_at, duration_ms, result, error
    ) AS row
    FROM taskmill_history WHERE {where} {order}
) AS rows;

-- name: shown_status
-- A fragment: the status of an active task, which is paused if it would wait and its scheduler, domain or group is.
CASE WHEN status = 'pending' AND EXISTS (
    SELECT 1 FROM taskmill_control AS control
    WHERE control.paused_at IS NOT NULL AND (control.resume_at IS NULL OR control.resume_at > {now}) AND (
        control.kind = 'scheduler' OR control.kind = 'group' AND control.name = group_name
        OR control.kind = 'domain' AND control.name = split_part(type, '::', 1))
) THEN 'paused' ELSE status END;

-- name: among_ids
-- A fragment: the tasks of a list.
id = ANY (taskmill_ids(?));

-- name: active_counts
SELECT coalesce(json_object_agg(shown, n), '{}') FROM (
    SELECT {status} AS shown, count(*) AS n FROM taskmill_task GROUP BY 1
) AS counted;

-- name: ended_counts
SELECT coalesce(json_object_agg(ending, n), '{}') FROM (
    SELECT ending, sum(kept) AS n FROM taskmill_tally GROUP BY ending
) AS counted;

-- name: stats
-- How many tasks of a type ended how, and how long they took together.
SELECT coalesce(json_object_agg(ending, json_build_array(n, ms)), '{}') FROM (
    SELECT ending, sum(ended) AS n, sum(duration_ms) AS ms FROM taskmill_tally WHERE type = $1 GROUP BY ending
) AS counted;

-- name: tag_values
SELECT value, count(*) FROM taskmill_task_tag WHERE name = $1 GROUP BY value ORDER BY 2 DESC, 1;

-- name: ended_among
SELECT coalesce(json_agg(id ORDER BY id), '[]') FROM taskmill_history WHERE id = ANY (taskmill_ids($1));
