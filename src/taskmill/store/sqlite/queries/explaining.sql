-- name: situation
-- Return everything about task ?1 that can hold it back.
SELECT json_array(
    t.id, t.type, t.group_name, t.priority, t.urgency, t.status, t.stop, t.created_at, t.queued_at, t.renewed_at, t.due_at,
    t.expires_at, t.started_at, t.attempt, t.last_error, t.gate_id, t.held, t.parent_id,
    (SELECT max_children FROM taskmill_task WHERE id = t.parent_id),
    json((SELECT json_group_array(on_id) FROM taskmill_dependency WHERE task_id = t.id AND open = 1)),
    t.children - t.children_ended,
    coalesce((SELECT paused FROM taskmill_series WHERE id = t.series_id), 0),
    t.preempted, t.paused_at, t.interrupted,
    {clock_from}, {place}, {may_expire}, t.io)
FROM taskmill_task AS t
WHERE t.id = ?1;

-- name: running
-- Return [group, type, count] of running tasks.
SELECT json_group_array(json_array(group_name, type, n)) FROM (
    SELECT group_name, type, count(*) AS n FROM taskmill_task WHERE status = 'running' GROUP BY group_name, type
);

-- name: waiting
-- Return [group, type, count] of tasks that may start, with one or more rows for each pair: grouping in the order of
-- the queue's index avoids a sort.
SELECT json_group_array(json_array(group_name, type, n)) FROM (
    SELECT group_name, type, count(*) AS n FROM taskmill_task WHERE status = 'pending' AND stop IS NULL
    GROUP BY group_name, urgency, type
);

-- name: expired_waiting
-- Return [group, type, count] of the tasks that "waiting" counts although they have expired.
SELECT json_group_array(json_array(group_name, type, n)) FROM (
    SELECT group_name, type, count(*) AS n FROM taskmill_task AS t
    WHERE status = 'pending' AND {is_expired} GROUP BY group_name, type
);

-- name: ahead
-- Count, for group ?1 or for every group, the waiting tasks that are more urgent than effective priority E, those
-- equally urgent that began to wait before (?2, ?3), and all that are equally urgent. ?4 has rows of [urgency, T1, T2]:
-- tasks of that urgency are more urgent than E if they have waited since T1, and equally urgent if since T2. Tasks of
-- the paused groups ?5 and the paused domains ?6 are left out. The rows of ?4 are unpacked once, not once per waiting
-- task.
WITH given (urgency, more_since, equal_since) AS MATERIALIZED (
    SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?4)
)
SELECT json_group_array(json_array(group_name, more_urgent, equal_before, equal)) FROM (
    SELECT
        t.group_name,
        sum(coalesce(t.renewed_at, t.queued_at) <= given.more_since) AS more_urgent,
        sum(coalesce(t.renewed_at, t.queued_at) > given.more_since
            AND coalesce(t.renewed_at, t.queued_at) <= given.equal_since
            AND (t.queued_at, {place}) < (?2, ?3)) AS equal_before,
        sum(coalesce(t.renewed_at, t.queued_at) > given.more_since
            AND coalesce(t.renewed_at, t.queued_at) <= given.equal_since) AS equal
    FROM taskmill_task AS t
    JOIN given ON t.urgency = given.urgency
    WHERE t.status = 'pending' AND t.stop IS NULL AND (?1 IS NULL OR t.group_name = ?1)
        AND t.group_name NOT IN (SELECT value FROM json_each(?5))
        AND (?6 = '[]' OR substr(t.type, 1, instr(t.type, '::') - 1) NOT IN (SELECT value FROM json_each(?6)))
    GROUP BY t.group_name
);

-- name: urgencies
SELECT json_group_array(DISTINCT urgency) FROM taskmill_task
WHERE status = 'pending' AND stop IS NULL AND (?1 IS NULL OR group_name = ?1);

-- name: heads
-- Return [group, type, urgency, aged_from, paused_at] of the first task of each lane in ?1.
SELECT json_group_array(json_array(t.group_name, t.type, t.urgency, coalesce(t.renewed_at, t.queued_at), t.paused_at))
FROM json_each(?1) AS lane
JOIN taskmill_task AS t ON t.id = (
    SELECT id FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = lane.value ->> 0 AND urgency = lane.value ->> 1
        AND type = lane.value ->> 2 AND (renewed_at IS NOT NULL) = (lane.value ->> 3)
    ORDER BY queued_at, {place} LIMIT 1
);

-- name: crossed
-- Return the waiting tasks whose age began after "since" and not after "until", for rows of [group, urgency, type,
-- renewed, since, until].
SELECT json_group_array(t.id)
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.status = 'pending' AND t.stop IS NULL AND t.group_name = given.value ->> 0
    AND t.urgency = given.value ->> 1 AND t.type = given.value ->> 2 AND (t.renewed_at IS NOT NULL) = (given.value ->> 3)
    AND t.queued_at <= given.value ->> 5 AND (t.renewed_at IS NOT NULL OR t.queued_at > given.value ->> 4)
WHERE t.renewed_at IS NULL OR t.renewed_at > given.value ->> 4 AND t.renewed_at <= given.value ->> 5;

-- name: following
-- Return, for each row as in crossed, when the age of the next task of the lane began.
SELECT json_group_array(CASE WHEN given.value ->> 3 THEN (
    SELECT min(renewed_at) FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = given.value ->> 0 AND urgency = given.value ->> 1
        AND type = given.value ->> 2 AND (renewed_at IS NOT NULL) = 1 AND renewed_at > given.value ->> 5
) ELSE (
    SELECT queued_at FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = given.value ->> 0 AND urgency = given.value ->> 1
        AND type = given.value ->> 2 AND (renewed_at IS NOT NULL) = 0 AND queued_at > given.value ->> 5
    ORDER BY queued_at LIMIT 1
) END)
FROM json_each(?1) AS given;
