-- name: version
-- Return the version of the controls, and whether any paused time is still to be given back.
SELECT CAST(value AS bigint), EXISTS (SELECT 1 FROM taskmill_ended_pause)
FROM taskmill_setting WHERE name = 'controls_version';

-- name: same_controls
-- Return a row if the controls have the version $1 and no paused time is still to be given back.
SELECT 1 FROM taskmill_setting
WHERE name = 'controls_version' AND CAST(value AS bigint) = $1::bigint
    AND NOT EXISTS (SELECT 1 FROM taskmill_ended_pause);

-- name: bump_version
UPDATE taskmill_setting SET value = CAST(value AS bigint) + 1 WHERE name = 'controls_version';

-- name: declared
SELECT value FROM taskmill_setting WHERE name = 'declared';

-- name: declare
INSERT INTO taskmill_setting (name, value) VALUES ('declared', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: controls
SELECT json_list(json_row(kind, name, change, paused_at, resume_at, bucket) ORDER BY kind, name)
FROM taskmill_control;

-- name: change_of
SELECT change FROM taskmill_control WHERE kind = $1 AND name = $2;

-- name: set_change
INSERT INTO taskmill_control (kind, name, change) VALUES ($1, $2, $3)
ON CONFLICT (kind, name) DO UPDATE SET change = excluded.change;

-- name: fill_buckets
-- Store token buckets.
-- sqlite:
INSERT INTO taskmill_control (kind, name, bucket, full_at)
SELECT kind, name, bucket, full_at FROM rows($1, kind text, name text, bucket text, full_at bigint) AS given WHERE true
ON CONFLICT (kind, name) DO UPDATE SET bucket = excluded.bucket, full_at = excluded.full_at;
-- postgres: in a fixed order, so that transactions cannot deadlock.
INSERT INTO taskmill_control (kind, name, bucket, full_at)
SELECT kind, name, bucket, full_at FROM rows($1, kind text, name text, bucket text, full_at bigint) AS given
ORDER BY 1, 2
ON CONFLICT (kind, name) DO UPDATE SET bucket = excluded.bucket, full_at = excluded.full_at;

-- name: forget_full_buckets
-- Delete buckets that are full at $1: a missing bucket counts as full.
DELETE FROM taskmill_control
WHERE full_at <= $1::bigint AND full_at IS NOT NULL AND change IS NULL AND paused_at IS NULL;

-- name: paused_at
SELECT paused_at FROM taskmill_control WHERE kind = $1 AND name = $2;

-- name: pause
INSERT INTO taskmill_control AS control (kind, name, paused_at, resume_at, resume_is_relative)
VALUES ($1, $2, $3::bigint, $4::bigint, $5::boolean)
ON CONFLICT (kind, name) DO UPDATE SET
    paused_at = coalesce(control.paused_at, excluded.paused_at), resume_at = excluded.resume_at,
    resume_is_relative = excluded.resume_is_relative;

-- name: resume
UPDATE taskmill_control SET paused_at = NULL, resume_at = NULL WHERE kind = $1 AND name = $2;

-- name: is_anything_paused
-- True if anything is paused, or an ended pause still has to give time back.
SELECT EXISTS (SELECT 1 FROM taskmill_control WHERE paused_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskmill_ended_pause);

-- name: overdue
-- Return the pauses that should have ended by $1, in the order of their ends.
SELECT kind, name, resume_at FROM taskmill_control WHERE resume_at <= $1::bigint ORDER BY resume_at, kind, name;

-- name: freeze
-- Keep tasks from expiring, at most $2: tasks whose deadline has passed at $1, but which were paused before it, or have
-- yet to get the time of an ended pause back.
-- sqlite:
UPDATE taskmill_task SET frozen = true
WHERE id IN (
    SELECT id FROM taskmill_task AS t
    WHERE {may_expire} AND t.frozen = false AND t.expires_at <= $1
        AND (EXISTS (SELECT 1 FROM taskmill_control AS control WHERE {pauses_it} AND {began_in_time})
            OR EXISTS (SELECT 1 FROM taskmill_ended_pause AS ended WHERE {owes_it}))
    LIMIT $2
);
-- postgres: an array makes the planner find the rows by id.
UPDATE taskmill_task SET frozen = true
WHERE id = ANY (ARRAY(
    SELECT id FROM taskmill_task AS t
    WHERE {may_expire} AND t.frozen = false AND t.expires_at <= $1::bigint
        AND (EXISTS (SELECT 1 FROM taskmill_control AS control WHERE {pauses_it} AND {began_in_time})
            OR EXISTS (SELECT 1 FROM taskmill_ended_pause AS ended WHERE {owes_it}))
    LIMIT $2::bigint
));

-- name: preempted
-- Return [id, cause] of preempted tasks.
{made_way};

-- name: resume_preempted
-- Return the given preempted tasks to the queue at $2, unless their series is paused.
UPDATE taskmill_task AS task SET
    status = CASE
        WHEN task.series_id IS NOT NULL AND (SELECT paused FROM taskmill_series AS s WHERE s.id = task.series_id)
            THEN 'paused'
        ELSE 'pending' END,
    preempted = 0,
    {pause_given_back}
FROM (
    SELECT t.id, {own_pause}
    FROM taskmill_task AS t
    WHERE t.id IN ids($1)
) AS own
WHERE task.id = own.id;

-- name: set_priority
UPDATE taskmill_task SET priority = $2::bigint WHERE id = $1::bigint AND stop IS NULL;

-- name: shift_pauses
-- Move pauses by $1 ms after a step of the wall clock, so that their lengths stay the same.
UPDATE taskmill_control SET
    paused_at = paused_at + $1::bigint,
    resume_at = CASE WHEN resume_is_relative THEN resume_at + $1::bigint ELSE resume_at END
WHERE paused_at IS NOT NULL;
