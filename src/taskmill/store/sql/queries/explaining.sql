-- name: situation
-- Return everything about task $1 that can hold it back.
SELECT json_row(
    t.id, t.type, t.group_name, t.priority, t.urgency, t.status, t.stop, t.created_at, t.queued_at, t.renewed_at, t.due_at,
    t.expires_at, t.started_at, t.attempt, t.last_error, t.gate_id, t.held, t.parent_id,
    (SELECT max_children FROM taskmill_task WHERE id = t.parent_id),
    (SELECT json_list(on_id ORDER BY on_id) FROM taskmill_dependency WHERE task_id = t.id AND open = true)::json,
    t.children - t.children_ended,
    coalesce((SELECT paused FROM taskmill_series WHERE id = t.series_id), false),
    t.preempted, t.paused_at, t.interrupted,
    {clock_from}, {place}, {may_expire}, t.io)
FROM taskmill_task AS t
WHERE t.id = $1::bigint;

-- name: running
-- Return [group, type, count] of running tasks.
SELECT json_list(json_row(group_name, type, n)) FROM (
    SELECT group_name, type, count(*) AS n FROM taskmill_task WHERE status = 'running' GROUP BY group_name, type
) AS counted;

-- name: waiting
-- Return [group, type, count] of tasks that may start, with one or more rows for each pair: grouping in the order of
-- the queue's index avoids a sort.
SELECT json_list(json_row(group_name, type, n)) FROM (
    SELECT group_name, type, count(*) AS n FROM taskmill_task WHERE status = 'pending' AND stop IS NULL
    GROUP BY group_name, urgency, type
) AS counted;

-- name: expired_waiting
-- Return [group, type, count] of the tasks that "waiting" counts although they have expired.
SELECT json_list(json_row(group_name, type, n)) FROM (
    SELECT group_name, type, count(*) AS n FROM taskmill_task AS t
    WHERE status = 'pending' AND {is_expired} GROUP BY group_name, type
) AS counted;

-- name: ahead
-- Count, for group $1 or for every group, the waiting tasks that are more urgent than effective priority E, those
-- equally urgent that began to wait before ($2, $3), and all that are equally urgent. $4 says for each urgency how long
-- its tasks must have waited: since "more_since" to be more urgent than E, since "equal_since" to be equally urgent.
-- Tasks of the paused groups $5 and the paused domains $6 are left out.
-- sqlite: the rows of $4 are unpacked once, not once per waiting task.
WITH given AS MATERIALIZED (
    SELECT urgency, more_since, equal_since FROM rows($4, urgency smallint, more_since bigint, equal_since bigint) AS row
)
SELECT json_list(json_row(group_name, more_urgent, equal_before, equal)) FROM (
    SELECT
        t.group_name,
        sum(coalesce(t.renewed_at, t.queued_at) <= given.more_since) AS more_urgent,
        sum(coalesce(t.renewed_at, t.queued_at) > given.more_since
            AND coalesce(t.renewed_at, t.queued_at) <= given.equal_since
            AND (t.queued_at, {place}) < ($2, $3)) AS equal_before,
        sum(coalesce(t.renewed_at, t.queued_at) > given.more_since
            AND coalesce(t.renewed_at, t.queued_at) <= given.equal_since) AS equal
    FROM taskmill_task AS t
    JOIN given ON t.urgency = given.urgency
    WHERE t.status = 'pending' AND t.stop IS NULL AND ($1 IS NULL OR t.group_name = $1)
        AND t.group_name NOT IN (SELECT value FROM json_each($5))
        AND ($6 = '[]' OR {domain} NOT IN (SELECT value FROM json_each($6)))
    GROUP BY t.group_name
);
-- postgres:
SELECT json_list(json_row(group_name, more_urgent, equal_before, equal)) FROM (
    SELECT
        t.group_name,
        count(*) FILTER (WHERE coalesce(t.renewed_at, t.queued_at) <= given.more_since) AS more_urgent,
        count(*) FILTER (WHERE coalesce(t.renewed_at, t.queued_at) > given.more_since
            AND coalesce(t.renewed_at, t.queued_at) <= given.equal_since
            AND (t.queued_at, {place}) < ($2::bigint, $3::bigint)) AS equal_before,
        count(*) FILTER (WHERE coalesce(t.renewed_at, t.queued_at) > given.more_since
            AND coalesce(t.renewed_at, t.queued_at) <= given.equal_since) AS equal
    FROM taskmill_task AS t
    JOIN rows($4, urgency smallint, more_since bigint, equal_since bigint) AS given ON t.urgency = given.urgency
    WHERE t.status = 'pending' AND t.stop IS NULL AND ($1::text IS NULL OR t.group_name = $1::text)
        AND t.group_name NOT IN (SELECT jsonb_array_elements_text($5::jsonb))
        AND {domain} NOT IN (SELECT jsonb_array_elements_text($6::jsonb))
    GROUP BY t.group_name
) AS rivals;

-- name: urgencies
SELECT json_list(DISTINCT urgency) FROM taskmill_task
WHERE status = 'pending' AND stop IS NULL AND ($1::text IS NULL OR group_name = $1::text);

-- name: heads
-- Return [group, type, urgency, aged_from, paused_at] of the first task of each lane in $1.
-- sqlite:
SELECT json_list(json_row(t.group_name, t.type, t.urgency, coalesce(t.renewed_at, t.queued_at), t.paused_at))
FROM rows($1, group_name text, urgency smallint, type text, renewed boolean) AS lane
JOIN taskmill_task AS t ON t.id = (
    SELECT id FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency = lane.urgency
        AND type = lane.type AND (renewed_at IS NOT NULL) = lane.renewed
    ORDER BY queued_at, {place} LIMIT 1
);
-- postgres:
SELECT json_list(json_row(t.group_name, t.type, t.urgency, coalesce(t.renewed_at, t.queued_at), t.paused_at))
FROM rows($1, group_name text, urgency smallint, type text, renewed boolean) AS lane
CROSS JOIN LATERAL (
    SELECT * FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency = lane.urgency
        AND type = lane.type AND (renewed_at IS NOT NULL) = lane.renewed
    ORDER BY queued_at, {place} LIMIT 1
) AS t;

-- name: crossed
-- Return the waiting tasks whose age began after "since" and not after "until", for each given lane.
SELECT json_list(t.id ORDER BY t.id)
FROM rows($1, group_name text, urgency smallint, type text, renewed boolean, since bigint, until bigint) AS given
JOIN taskmill_task AS t ON t.status = 'pending' AND t.stop IS NULL AND t.group_name = given.group_name
    AND t.urgency = given.urgency AND t.type = given.type AND (t.renewed_at IS NOT NULL) = given.renewed
    AND t.queued_at <= given.until AND (t.renewed_at IS NOT NULL OR t.queued_at > given.since)
WHERE t.renewed_at IS NULL OR t.renewed_at > given.since AND t.renewed_at <= given.until;

-- name: following
-- Return, for each row as in crossed, when the age of the next task of the lane began.
-- sqlite:
SELECT json_list(CASE WHEN given.renewed THEN (
    SELECT min(renewed_at) FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = given.group_name AND urgency = given.urgency
        AND type = given.type AND (renewed_at IS NOT NULL) = 1 AND renewed_at > given.until
) ELSE (
    SELECT queued_at FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = given.group_name AND urgency = given.urgency
        AND type = given.type AND (renewed_at IS NOT NULL) = 0 AND queued_at > given.until
    ORDER BY queued_at LIMIT 1
) END)
FROM rows($1, group_name text, urgency smallint, type text, renewed boolean, since bigint, until bigint) AS given;
-- postgres: the order of the rows must be given explicitly.
SELECT json_list(CASE WHEN (given.value ->> 3)::boolean THEN (
    SELECT min(renewed_at) FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = given.value ->> 0
        AND urgency = (given.value ->> 1)::smallint AND type = given.value ->> 2
        AND renewed_at IS NOT NULL AND renewed_at > (given.value ->> 5)::bigint
) ELSE (
    SELECT queued_at FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = given.value ->> 0
        AND urgency = (given.value ->> 1)::smallint AND type = given.value ->> 2
        AND (renewed_at IS NOT NULL) = false AND queued_at > (given.value ->> 5)::bigint
    ORDER BY queued_at LIMIT 1
) END ORDER BY given.n)
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS given (value, n);
