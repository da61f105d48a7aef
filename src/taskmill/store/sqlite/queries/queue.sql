-- name: lanes
-- Every lane that has waiting tasks, by skipping through the index: cost grows with lanes, not tasks.
WITH RECURSIVE {every_lane}
SELECT {lanes_found};

-- name: survey
-- What there is to do, all as of one moment: [lanes, hooks that are due, the next due, the next deadline, the next beat of
-- a series, [id, for what] of tasks that made way, [id, why] of running ones that somebody has asked to stop, [id,
-- priority, urgency] of all that run here, what others are at, which types that wait others can run]. ?1 as in elsewhere.
WITH RECURSIVE {every_lane}
SELECT json_array(
    json({lanes_found}), json(({hooks_due})), ({first_due}), ({first_expiry}), ({first_beat}), json(({made_way})),
    json(({stop_requests})), json(({running_urgencies})), {others_at_work}, json_array());

-- name: front_of_lanes
-- The first ?2 places of each given lane, passing over what may no longer start at ?3: a sweep under way has not come to
-- it yet, and it must not stand in the way of the others.
SELECT json_group_array(json_array(lane.value ->> 0, lane.value ->> 1, lane.value ->> 2,
    json(iif(lane.value ->> 3, 'true', 'false')), json((
        SELECT json_group_array(json_array(front.queued_at, front.place, front.id, front.renewed_at, front.io)) FROM (
            SELECT queued_at, {place} AS place, id, renewed_at, {budget} AS io FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name = lane.value ->> 0 AND urgency = lane.value ->> 1
                AND type = lane.value ->> 2 AND (renewed_at IS NOT NULL) = (lane.value ->> 3)
                AND (expires_at IS NULL OR expires_at > ?3 OR interrupted)
            ORDER BY queued_at, {place} LIMIT ?2
        ) AS front
    ))))
FROM json_each(?1) AS lane;

-- name: next_due
{first_due};

-- name: next_expiry
{first_expiry};

-- name: next_beat
{first_beat};

-- name: due
-- Scheduled tasks whose time has come, at most ?2.
SELECT json_group_array(id) FROM (
    SELECT id FROM taskmill_task WHERE status = 'scheduled' AND due_at <= ?1 ORDER BY due_at LIMIT ?2
);

-- name: promote
UPDATE taskmill_task SET status = 'pending' WHERE id IN (SELECT value FROM json_each(?1));

-- name: expired
-- Waiting tasks past their deadline, at most ?2.
SELECT json_group_array(json_array(id, children > children_ended)) FROM (
    SELECT id, children, children_ended FROM taskmill_task AS t
    WHERE {may_expire} AND t.frozen = 0 AND t.expires_at <= ?1
    ORDER BY t.expires_at LIMIT ?2
);

-- name: late
-- Those of the given tasks whose stored deadlines have passed at ?2, paused or not.
SELECT json_group_array(id) FROM taskmill_task AS t
WHERE id IN (SELECT value FROM json_each(?1)) AND {may_expire} AND t.expires_at <= ?2;

-- name: expired_among
-- [id, whether it has children left] of those of a list that are past their deadlines.
SELECT json_group_array(json_array(id, children > children_ended)) FROM taskmill_task AS t
WHERE id IN (SELECT value FROM json_each(?)) AND {is_expired};

-- name: shift_deadlines
-- The wall clock was stepped by ?1 ms: a time-to-live is a duration and moves with it. That of a first
-- occurrence counts from when it is due, which is an instant that the step does not move.
UPDATE taskmill_task SET expires_at = expires_at + ?1
WHERE expires_at IS NOT NULL
    AND (series_id IS NULL OR due_is_relative = 1 OR status NOT IN ('scheduled', 'blocked'));

-- name: shift_relative
-- The wall clock was stepped by ?1 ms: what was due "after a delay" moves with it.
UPDATE taskmill_task SET due_at = due_at + ?1 WHERE due_is_relative = 1 AND due_at IS NOT NULL;

-- name: shift_waits
-- The wall clock was stepped by ?1 ms: nobody has waited longer or shorter for it, and the order of the queue stands. What
-- is due at an instant begins to wait then.
UPDATE taskmill_task SET
    queued_at = queued_at + ?1, renewed_at = renewed_at + ?1, paused_at = paused_at + ?1,
    started_at = iif(status = 'running', started_at + ?1, started_at)
WHERE (due_is_relative = 1 OR due_at IS NULL OR status <> 'scheduled');

-- name: claimable
-- What the given waiting tasks need to be run under a new attempt token.
SELECT json_group_array(json_array(
    id, attempt + 1, type, key, label, group_name, priority, payload, tags, overrides, retries, crashes,
    created_at, queued_at, due_at, coalesce(expires_at, ?2 + ttl_ms), ?2, parent_id, saved, replaced, stop,
    last_error, urgency,
    json(CASE WHEN children OR finalizing THEN json_array(children, finalizing, outcome ->> 1) END),
    awaited OR parent_id IS NOT NULL OR series_id IS NOT NULL OR children OR cron IS NOT NULL, renewed_at,
    {place}, io, cron))
FROM taskmill_task
WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'pending'
    AND (expires_at IS NULL OR expires_at > ?2 OR stop IS NOT NULL OR interrupted);

-- name: claim
UPDATE taskmill_task SET
    status = 'running', attempt = attempt + 1, started_at = ?2, expires_at = coalesce(expires_at, ?2 + ttl_ms)
WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'pending'
    AND (expires_at IS NULL OR expires_at > ?2 OR stop IS NOT NULL OR interrupted);
