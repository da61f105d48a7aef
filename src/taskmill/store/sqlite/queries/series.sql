-- name: begin
INSERT INTO taskmill_series (template, every_ms, first_at, due_at, ttl_ms, runs, max_runs)
VALUES (?1, ?2, ?3, ?3, ?4, 1, ?5)
RETURNING id;

-- name: join_series
UPDATE taskmill_task SET series_id = ?2 WHERE id = ?1 AND series_id IS NULL;

-- name: of_ended
-- The series whose occurrences are among the given ended tasks.
SELECT json_group_array(DISTINCT ended.series_id)
FROM json_each(?1) AS given
JOIN taskmill_history AS ended ON ended.id = given.value
WHERE ended.series_id IS NOT NULL;

-- name: of_task
-- The series that a task, active or ended, belongs to.
SELECT series_id FROM taskmill_task WHERE id = ?1 AND series_id IS NOT NULL
UNION ALL
SELECT series_id FROM taskmill_history WHERE id = ?1 AND series_id IS NOT NULL;

-- name: series
SELECT json_array(template, every_ms, first_at, due_at, ttl_ms, runs, max_runs, paused) FROM taskmill_series WHERE id = ?1;

-- name: advance
UPDATE taskmill_series SET due_at = ?2, runs = runs + ?3 WHERE id = ?1;

-- name: set_paused
UPDATE taskmill_series SET paused = ?2 WHERE id = ?1;

-- name: forget
DELETE FROM taskmill_series WHERE id = ?1;

-- name: occurrence
-- The active occurrence of a series: [id, status, attempt].
SELECT json_array(id, status, attempt) FROM taskmill_task WHERE series_id = ?1 AND series_id IS NOT NULL AND stop IS NULL;

-- name: has_active
SELECT EXISTS (SELECT 1 FROM taskmill_task WHERE series_id = ?1 AND series_id IS NOT NULL);

-- name: pause_occurrence
-- One that its scheduler, domain or group has paused already has stood still since then.
UPDATE taskmill_task SET
    status = 'paused',
    paused_at = min(?2, coalesce(max({paused_with_others_since}, coalesce(paused_at, created_at)), ?2))
WHERE id = ?1 AND status IN ('pending', 'scheduled', 'blocked');

-- name: resume_occurrence
-- ?2 is when it is due now, ?3 the present, ?4 its deadline. It is released next, unless something else holds it back.
UPDATE taskmill_task SET status = 'blocked', due_at = ?2, queued_at = max(?2, ?3), place_id = NULL, expires_at = ?4
WHERE id = ?1 AND status = 'paused';

-- name: resume_retry
-- At ?2. One that made way for a more urgent task still does.
UPDATE taskmill_task SET
    status = iif(preempted, 'paused', 'blocked'),
    {pause_given_back}
FROM (
    SELECT t.id, {own_pause}
    FROM taskmill_task AS t
    WHERE t.id = ?1 AND t.status = 'paused'
) AS own
WHERE taskmill_task.id = own.id;

-- name: schedules
SELECT json_group_array(json_array(
    t.type, t.key, s.every_ms, coalesce(t.due_at, s.due_at), t.id, s.runs, s.max_runs, s.paused))
FROM taskmill_series AS s
JOIN taskmill_task AS t ON t.id = (
    SELECT max(id) FROM taskmill_task WHERE series_id = s.id AND series_id IS NOT NULL);
