-- name: lanes
-- Return every lane that has waiting tasks. A lane is the queue of one group, urgency and type; tasks whose aging was
-- restarted (renewed) have a lane of their own. The query skips through the index, so its cost grows with lanes, not
-- with tasks.
WITH RECURSIVE {every_lane}
SELECT {lanes_found};

-- name: survey
-- Return everything the dispatcher needs for planning, as of one moment: [lanes, ids of due hooks, next due time, next
-- deadline, next due time of a series, [id, cause] of preempted tasks, [id, reason] of running tasks that were asked to
-- stop, [id, priority, urgency] of the tasks running here, load of other nodes, waiting types that other nodes can
-- run]. ?1 is the number of slots here, as in elsewhere.
WITH RECURSIVE {every_lane}
SELECT json_array(
    json({lanes_found}), json(({hooks_due})), ({first_due}), ({first_expiry}), ({first_beat}), json(({made_way})),
    json(({stop_requests})), json(({running_urgencies})), {others_at_work}, json_array());

-- name: front_of_lanes
-- Return the first ?2 tasks of each given lane. Skip tasks whose deadline has passed at ?3: the expiry sweep has not
-- reached them yet, and they must not block the tasks behind them.
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
-- Return at most ?2 scheduled tasks that are due at ?1.
SELECT json_group_array(id) FROM (
    SELECT id FROM taskmill_task WHERE status = 'scheduled' AND due_at <= ?1 ORDER BY due_at LIMIT ?2
);

-- name: promote
UPDATE taskmill_task SET status = 'pending' WHERE id IN (SELECT value FROM json_each(?1));

-- name: expired
-- Return at most ?2 waiting tasks whose deadlines have passed at ?1, as [id, has live children].
SELECT json_group_array(json_array(id, children > children_ended)) FROM (
    SELECT id, children, children_ended FROM taskmill_task AS t
    WHERE {may_expire} AND t.frozen = 0 AND t.expires_at <= ?1
    ORDER BY t.expires_at LIMIT ?2
);

-- name: late
-- Return those of the given tasks whose stored deadlines have passed at ?2, paused or not.
SELECT json_group_array(id) FROM taskmill_task AS t
WHERE id IN (SELECT value FROM json_each(?1)) AND {may_expire} AND t.expires_at <= ?2;

-- name: expired_among
-- Return those of the given tasks that have expired, as [id, has live children].
SELECT json_group_array(json_array(id, children > children_ended)) FROM taskmill_task AS t
WHERE id IN (SELECT value FROM json_each(?)) AND {is_expired};

-- name: shift_deadlines
-- Move deadlines by ?1 ms after a step of the wall clock, because a time-to-live is a duration. The deadline of a
-- series' first occurrence counts from its due time; if that is a fixed instant, neither moves.
UPDATE taskmill_task SET expires_at = expires_at + ?1
WHERE expires_at IS NOT NULL
    AND (series_id IS NULL OR due_is_relative = 1 OR status NOT IN ('scheduled', 'blocked'));

-- name: shift_relative
-- Move due times that were given as a delay by ?1 ms after a step of the wall clock.
UPDATE taskmill_task SET due_at = due_at + ?1 WHERE due_is_relative = 1 AND due_at IS NOT NULL;

-- name: shift_waits
-- Move waiting times by ?1 ms after a step of the wall clock, so that ages and the order of the queue stay the same. A
-- task scheduled for a fixed instant starts to wait at that instant, so it is left out.
UPDATE taskmill_task SET
    queued_at = queued_at + ?1, renewed_at = renewed_at + ?1, paused_at = paused_at + ?1,
    started_at = iif(status = 'running', started_at + ?1, started_at)
WHERE (due_is_relative = 1 OR due_at IS NULL OR status <> 'scheduled');

-- name: claimable
-- Return what is needed to run those of the given tasks that still wait, with their new attempt tokens.
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
