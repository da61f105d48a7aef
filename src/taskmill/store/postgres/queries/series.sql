-- name: begin
INSERT INTO taskmill_series (template, every_ms, first_at, due_at, ttl_ms, runs, max_runs)
VALUES ($1, $2::bigint, $3::bigint, $3::bigint, $4::bigint, 1, $5::bigint)
RETURNING id;

-- name: join_series
UPDATE taskmill_task SET series_id = $2::bigint WHERE id = $1::bigint AND series_id IS NULL;

-- name: of_ended
-- The series whose occurrences are among the given ended tasks.
SELECT coalesce(json_agg(DISTINCT series_id), '[]')
FROM taskmill_history WHERE id = ANY (taskmill_ids($1)) AND series_id IS NOT NULL;

-- name: of_task
-- The series that a task, active or ended, belongs to.
SELECT series_id FROM taskmill_task WHERE id = $1::bigint AND series_id IS NOT NULL
UNION ALL
SELECT series_id FROM taskmill_history WHERE id = $1::bigint AND series_id IS NOT NULL;

-- name: series
SELECT json_build_array(template, every_ms, first_at, due_at, ttl_ms, runs, max_runs, paused)
FROM taskmill_series WHERE id = $1::bigint;

-- name: advance
UPDATE taskmill_series SET due_at = $2::bigint, runs = runs + $3::bigint WHERE id = $1::bigint;

-- name: set_paused
UPDATE taskmill_series SET paused = $2::bigint <> 0 WHERE id = $1::bigint;

-- name: forget
DELETE FROM taskmill_series WHERE id = $1::bigint;

-- name: occurrence
-- The active occurrence of a series: [id, status, attempt].
SELECT json_build_array(id, status, attempt) FROM taskmill_task
WHERE series_id = $1::bigint AND series_id IS NOT NULL AND stop IS NULL;

-- name: has_active
SELECT EXISTS (SELECT 1 FROM taskmill_task WHERE series_id = $1::bigint AND series_id IS NOT NULL);

-- name: pause_occurrence
-- One that its scheduler, domain or group has paused already has stood still since then.
UPDATE taskmill_task SET
    status = 'paused',
    paused_at = least($2::bigint, CASE WHEN {paused_with_others_since} IS NOT NULL
        THEN greatest({paused_with_others_since}, coalesce(paused_at, created_at)) END)
WHERE id = $1::bigint AND status IN ('pending', 'scheduled', 'blocked');

-- name: resume_occurrence
-- $2 is when it is due now, $3 the present, $4 its deadline. It is released next, unless something else holds it back.
UPDATE taskmill_task SET
    status = 'blocked', due_at = $2::bigint, queued_at = greatest($2::bigint, $3::bigint), place_id = NULL,
    expires_at = $4::bigint
WHERE id = $1::bigint AND status = 'paused';

-- name: resume_retry
-- At $2. One that made way for a more urgent task still does.
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
SELECT coalesce(json_agg(json_build_array(
    t.type, t.key, s.every_ms, coalesce(t.due_at, s.due_at), t.id, s.runs, s.max_runs, s.paused) ORDER BY s.id), '[]')
FROM taskmill_series AS s
JOIN taskmill_task AS t ON t.id = (
    SELECT max(id) FROM taskmill_task WHERE series_id = s.id AND series_id IS NOT NULL);
