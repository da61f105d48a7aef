-- name: queue_state
-- Return every active task, with everything that decides when it starts; see model/queue_state.py for the order.
SELECT json_list(json_row(
    t.id, t.type, t.group_name, t.priority, t.urgency, {status_begun}, t.created_at, t.queued_at, t.renewed_at, t.due_at,
    t.expires_at, t.started_at, t.paused_at, {clock_from}, {place}, t.retries, {may_expire}, t.io, t.gate_id, t.parent_id,
    t.held, t.series_id, t.cron, t.on_dependency_failure, t.overrides, t.children - t.children_ended, t.stop))
FROM taskmill_task AS t;

-- name: open_dependencies
-- Return [task, task that it waits for] of every open dependency.
SELECT json_list(json_row(task_id, on_id)) FROM taskmill_dependency WHERE open = true;

-- name: all_series
-- Return every recurring series.
SELECT json_list(json_row(id, every_ms, first_at, due_at, ttl_ms, runs, max_runs, paused)) FROM taskmill_series;

-- name: recent_runs
-- Return [type, list of [group, ending, duration, retries]] of the last $2 tasks that ended by themselves, for each type
-- of $1. How long a task ran until it was cancelled or replaced says little about others.
SELECT json_list(json_row(given.type, (
    SELECT json_list(json_row(group_name, ending, duration_ms, retries)) FROM (
        SELECT group_name, ending, duration_ms, retries FROM taskmill_history
        WHERE type = given.type AND duration_ms IS NOT NULL AND ending IN ('completed', 'failed', 'dead_letter')
        ORDER BY ended_at DESC, id DESC LIMIT $2::bigint
    ) AS recent
)::json))
FROM rows($1, type text) AS given;

-- name: past_tasks
-- Return the tasks that were submitted at $1 or later, have run and have ended, at most $2; see model/queue_state.py.
-- They ended after they were submitted, and every ending is named, so that the index by ending and time finds them.
SELECT json_list(json_row(id, type, group_name, priority, created_at, due_at, expires_at, duration_ms, io)) FROM (
    SELECT id, type, group_name, priority, created_at, due_at, expires_at, duration_ms, io FROM taskmill_history
    WHERE ending IN ('completed', 'failed', 'dead_letter', 'cancelled', 'superseded', 'expired', 'dependency_failed')
        AND ended_at >= $1::bigint AND created_at >= $1::bigint AND duration_ms IS NOT NULL
    ORDER BY id DESC LIMIT $2::bigint
) AS past;
