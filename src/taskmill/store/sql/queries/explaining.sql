-- name: situation
-- Return everything about task $1 that can hold it back.
SELECT json_row(
    t.id, t.type, t.group_name, t.priority, t.urgency, {status_begun}, t.stop, t.created_at, t.queued_at, t.renewed_at, t.due_at,
    t.expires_at, t.started_at, {attempts_begun}, t.last_error, t.gate_id, t.held, t.parent_id,
    (SELECT max_children FROM taskmill_task WHERE id = t.parent_id),
    (SELECT json_list(on_id ORDER BY on_id) FROM taskmill_dependency WHERE task_id = t.id AND open = true)::json,
    t.children - t.children_ended,
    coalesce((SELECT paused FROM taskmill_series WHERE id = t.series_id), false),
    t.preempted, t.paused_at, t.interrupted,
    {clock_from}, {place}, {may_expire}, t.io)
FROM taskmill_task AS t
WHERE t.id = $1::bigint;

-- name: in_spans
-- Count the waiting tasks in each given span of a lane, at most $2 of each; return [n, count]. A span begins after the
-- time "since" and ends before the place (end_at, end_place). The rows of $1 are unpacked once, not once per task.
-- No place is before place 0, so the index is not searched for it.
WITH span AS MATERIALIZED (
    SELECT * FROM rows($1,
        n bigint, group_name text, urgency smallint, type text, renewed boolean, since bigint, end_at bigint,
        end_place bigint
    ) AS row
)
SELECT json_list(json_row(span.n, (SELECT count(*) FROM (
    SELECT 1 FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = span.group_name AND urgency = span.urgency
        AND type = span.type AND (renewed_at IS NOT NULL) = span.renewed
        AND queued_at > span.since AND queued_at < span.end_at
    UNION ALL
    SELECT 1 FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = span.group_name AND urgency = span.urgency
        AND type = span.type AND (renewed_at IS NOT NULL) = span.renewed
        AND queued_at = span.end_at AND {place} < span.end_place AND span.end_place > 0
    LIMIT $2::bigint
) AS found)))
FROM span;

-- name: in_renewed_spans
-- Look at the first $2 tasks of each given lane of tasks whose aging was restarted, up to the place (end_at,
-- end_place). Return [n, number of tasks looked at, number of those whose age began after "since", up to "until"].
WITH span AS MATERIALIZED (
    SELECT * FROM rows($1,
        n bigint, group_name text, urgency smallint, type text, since bigint, until bigint, end_at bigint,
        end_place bigint
    ) AS row
)
SELECT json_list(json_row(span.n, (
    SELECT json_row(count(*), count(CASE WHEN renewed_at > span.since AND renewed_at <= span.until THEN 1 END)) FROM (
        SELECT renewed_at FROM taskmill_task
        WHERE status = 'pending' AND stop IS NULL AND group_name = span.group_name AND urgency = span.urgency
            AND type = span.type AND (renewed_at IS NOT NULL) = true
            AND queued_at <= span.end_at AND (queued_at < span.end_at OR {place} < span.end_place)
        ORDER BY queued_at, {place} LIMIT $2::bigint
    ) AS first
)::json))
FROM span;

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
