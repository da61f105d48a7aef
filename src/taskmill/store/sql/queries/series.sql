-- name: begin
INSERT INTO taskmill_series (template, every_ms, first_at, due_at, ttl_ms, runs, max_runs, made_at, first_id)
VALUES ($1, $2::bigint, $3::bigint, $3::bigint, $4::bigint, 1, $5::bigint, $6::bigint, $7::bigint)
RETURNING id;

-- name: join_series
UPDATE taskmill_task SET series_id = $2::bigint WHERE id = $1::bigint AND series_id IS NULL;

-- name: of_ended
-- Return [id, came] of the series whose occurrences are among the given ended tasks; came is true if the occurrence
-- that was due last has started.
-- sqlite:
SELECT json_list(json_row(id, came)) FROM (
    SELECT series.id,
        max(ended.started_at IS NOT NULL AND coalesce(ended.due_at, ended.created_at) = series.due_at) AS came
    FROM json_each($1) AS given
    JOIN taskmill_history AS ended ON ended.id = given.value
    JOIN taskmill_series AS series ON series.id = ended.series_id
    GROUP BY series.id
);
-- postgres:
SELECT json_list(json_row(id, came)) FROM (
    SELECT series.id,
        bool_or(ended.started_at IS NOT NULL AND coalesce(ended.due_at, ended.created_at) = series.due_at) AS came
    FROM taskmill_history AS ended
    JOIN taskmill_series AS series ON series.id = ended.series_id
    WHERE ended.id IN ids($1)
    GROUP BY series.id
) AS ended;

-- name: of_task
-- Return the series of a task, active or ended. The first occurrence is known even after it was pruned.
SELECT series_id FROM taskmill_task WHERE id = $1::bigint AND series_id IS NOT NULL
UNION ALL
SELECT series_id FROM taskmill_history WHERE id = $1::bigint AND series_id IS NOT NULL
UNION ALL
SELECT id FROM taskmill_series WHERE first_id = $1::bigint;

-- name: series
SELECT json_row(template, every_ms, first_at, due_at, ttl_ms, runs, max_runs, paused)
FROM taskmill_series WHERE id = $1::bigint;

-- name: advance
UPDATE taskmill_series SET
    first_at = $2::bigint, due_at = $3::bigint, runs = runs + $4::bigint, made_at = $5::bigint
WHERE id = $1::bigint;

-- name: beats_passed
-- Return [id, every_ms, due_at, active occurrence] of at most $2 series whose next due time has come at $1 while an
-- occurrence is active.
SELECT json_list(json_row(id, every_ms, due_at, task_id)) FROM (
    SELECT series.id, every_ms, due_at, (
        SELECT max(task.id) FROM taskmill_task AS task
        WHERE task.series_id = series.id AND task.series_id IS NOT NULL
    ) AS task_id
    FROM taskmill_series AS series
    WHERE {may_skip} AND due_at + every_ms <= $1::bigint
    ORDER BY id LIMIT $2::bigint
) AS passed WHERE task_id IS NOT NULL;

-- name: settle_beats
-- Skip the due times after $2 up to $3, at $4, unless another node has done so.
UPDATE taskmill_series SET due_at = $3::bigint, made_at = $4::bigint WHERE id = $1::bigint AND due_at = $2::bigint;

-- name: shift_series
-- Move the due times of series by $1 ms after a step of the wall clock, unless the first one is a fixed instant that
-- has not come.
UPDATE taskmill_series SET
    first_at = first_at + $1::bigint, due_at = due_at + $1::bigint, made_at = made_at + $1::bigint
WHERE NOT {begins_at_an_instant};

-- name: series_ahead
-- Return [id, made_at] of series that were written after the current time, $1: the clock was set back since.
SELECT json_list(json_row(id, made_at)) FROM taskmill_series
WHERE made_at > $1::bigint AND NOT {begins_at_an_instant};

-- name: move_series
-- Move the due times of a series by $2 ms.
UPDATE taskmill_series SET
    first_at = first_at + $2::bigint, due_at = due_at + $2::bigint, made_at = made_at + $2::bigint
WHERE id = $1::bigint;

-- name: move_occurrences
-- Move the waiting occurrences of series $1 by $2 ms.
UPDATE taskmill_task SET
    due_at = due_at + $2::bigint, expires_at = expires_at + $2::bigint, queued_at = queued_at + $2::bigint
WHERE series_id = $1::bigint AND series_id IS NOT NULL AND due_is_relative = true
    AND status IN ('scheduled', 'blocked', 'paused');

-- name: set_paused
UPDATE taskmill_series SET paused = ($2::bigint <> 0) WHERE id = $1::bigint;

-- name: forget
DELETE FROM taskmill_series WHERE id = $1::bigint;

-- name: occurrence
-- Return the active occurrence of a series, as [id, status, attempt].
SELECT json_row(id, status, attempt) FROM taskmill_task
WHERE series_id = $1::bigint AND series_id IS NOT NULL AND stop IS NULL;

-- name: has_active
SELECT EXISTS (SELECT 1 FROM taskmill_task WHERE series_id = $1::bigint AND series_id IS NOT NULL);

-- name: pause_occurrence
-- Pause the occurrence of a series. If its scheduler, domain or group was paused before, it counts as paused since
-- then.
UPDATE taskmill_task SET
    status = 'paused',
    paused_at = least($2::bigint, coalesce(CASE WHEN {paused_with_others_since} IS NOT NULL
        THEN greatest({paused_with_others_since}, coalesce(paused_at, created_at)) END, $2::bigint))
WHERE id = $1::bigint AND status IN ('pending', 'scheduled', 'blocked');

-- name: resume_occurrence
-- Resume the occurrence of a series. It is due at $2 and expires at $4; $3 is the current time. The caller releases
-- it, unless something else blocks it.
UPDATE taskmill_task SET
    status = 'blocked', due_at = $2::bigint, queued_at = greatest($2::bigint, $3::bigint), place_id = NULL,
    expires_at = $4::bigint
WHERE id = $1::bigint AND status = 'paused';

-- name: resume_retry
-- Resume an occurrence that has started before, at $2. A preempted one stays paused.
UPDATE taskmill_task AS task SET
    status = CASE WHEN task.preempted > 0 THEN 'paused' ELSE 'blocked' END,
    {pause_given_back}
FROM (
    SELECT t.id, {own_pause}
    FROM taskmill_task AS t
    WHERE t.id = $1::bigint AND t.status = 'paused'
) AS own
WHERE task.id = own.id;

-- name: schedules
SELECT json_list(json_row(
    t.type, t.key, s.every_ms, coalesce(t.due_at, s.due_at), t.id, s.runs, s.max_runs, s.paused) ORDER BY s.id)
FROM taskmill_series AS s
JOIN taskmill_task AS t ON t.id = (
    SELECT max(id) FROM taskmill_task WHERE series_id = s.id AND series_id IS NOT NULL);

-- name: server_clock
-- Return the time of the server, in milliseconds since the epoch.
-- sqlite: 0, because a file has no clock of its own, and no other nodes that would need one.
SELECT 0;
-- postgres:
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
