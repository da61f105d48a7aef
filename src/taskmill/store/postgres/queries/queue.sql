-- name: lanes
-- Every lane that has waiting tasks, by skipping through the index: cost grows with lanes, not tasks.
WITH RECURSIVE {every_lane}
SELECT {lanes_found};

-- name: survey
-- What there is to do, all as of one moment: [lanes, hooks that are due, the next due, the next deadline, the next beat of
-- a series, [id, for what] of tasks that made way, [id, why] of running ones that somebody has asked to stop, [id,
-- priority, urgency] of all that run here, what others are at, which types that wait others can run]. $1 as in elsewhere.
WITH RECURSIVE {every_lane}, {own_slots}
SELECT json_build_array(
    {lanes_found}, ({hooks_due}), ({first_due}), ({first_expiry}), ({first_beat}), ({made_way}), ({stop_requests}),
    ({running_urgencies}), {others_at_work},
    (
        SELECT coalesce(json_agg(DISTINCT known.type), '[]')
        FROM taskmill_node AS node CROSS JOIN LATERAL json_array_elements_text(node.types::json) AS known (type)
        WHERE node.id IS DISTINCT FROM {this_node} AND known.type IN (SELECT lane.type FROM lane)
    )
);

-- name: front_of_lanes
-- The first $2 places of each given lane, passing over what may no longer start at $3: a sweep under way has not come to
-- it yet, and it must not stand in the way of the others.
SELECT coalesce(json_agg(json_build_array(lane.group_name, lane.urgency, lane.type, lane.renewed, (
    SELECT coalesce(json_agg(json_build_array(front.queued_at, front.place, front.id, front.renewed_at, front.io)), '[]') FROM (
        SELECT queued_at, {place} AS place, id, renewed_at, io FROM taskmill_task
        WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency = lane.urgency
            AND type = lane.type AND (renewed_at IS NOT NULL) = lane.renewed
            AND (expires_at IS NULL OR expires_at > $3::bigint OR interrupted)
        ORDER BY queued_at, {place} LIMIT $2::bigint
    ) AS front
))), '[]')
FROM (
    SELECT value ->> 0 AS group_name, (value ->> 1)::smallint AS urgency, value ->> 2 AS type,
        (value ->> 3)::boolean AS renewed
    FROM jsonb_array_elements($1::jsonb) AS given (value)
) AS lane;

-- name: next_due
{first_due};

-- name: next_expiry
{first_expiry};

-- name: next_beat
{first_beat};

-- name: due
-- Scheduled tasks whose time has come, at most $2. What another node promotes right now is left to it.
SELECT coalesce(json_agg(id), '[]') FROM (
    SELECT id FROM taskmill_task WHERE status = 'scheduled' AND due_at <= $1::bigint
    ORDER BY due_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED
) AS due;

-- name: promote
UPDATE taskmill_task SET status = 'pending' WHERE id = ANY (taskmill_ids($1)) AND status = 'scheduled';

-- name: expired
-- Waiting tasks past their deadline, at most $2.
SELECT coalesce(json_agg(json_build_array(id, children > children_ended)), '[]') FROM (
    SELECT id, children, children_ended FROM taskmill_task AS t
    WHERE {may_expire} AND NOT t.frozen AND t.expires_at <= $1::bigint
    ORDER BY t.expires_at LIMIT $2::bigint
) AS expired;

-- name: late
-- Those of the given tasks whose stored deadlines have passed at $2, paused or not.
SELECT coalesce(json_agg(id), '[]') FROM taskmill_task AS t
WHERE id = ANY (taskmill_ids($1)) AND {may_expire} AND t.expires_at <= $2::bigint;

-- name: expired_among
-- [id, whether it has children left] of those of a list that are past their deadlines.
SELECT coalesce(json_agg(json_build_array(id, children > children_ended)), '[]') FROM taskmill_task AS t
WHERE id = ANY (taskmill_ids(?)) AND {is_expired};

-- name: shift_deadlines
-- The wall clock was stepped by $1 ms: a time-to-live is a duration and moves with it. That of a first
-- occurrence counts from when it is due, which is an instant that the step does not move.
UPDATE taskmill_task SET expires_at = expires_at + $1::bigint
WHERE expires_at IS NOT NULL
    AND (series_id IS NULL OR due_is_relative OR status NOT IN ('scheduled', 'blocked'));

-- name: shift_relative
-- The wall clock was stepped by $1 ms: what was due "after a delay" moves with it.
UPDATE taskmill_task SET due_at = due_at + $1::bigint WHERE due_is_relative AND due_at IS NOT NULL;

-- name: shift_waits
-- The wall clock was stepped by $1 ms: nobody has waited longer or shorter for it, and the order of the queue stands. What
-- is due at an instant begins to wait then.
UPDATE taskmill_task SET
    queued_at = queued_at + $1::bigint, renewed_at = renewed_at + $1::bigint, paused_at = paused_at + $1::bigint,
    started_at = CASE WHEN status = 'running' THEN started_at + $1::bigint ELSE started_at END
WHERE (due_is_relative OR due_at IS NULL OR status <> 'scheduled');

-- name: claimable
-- Claims those of the given tasks that still wait, for the node of this session, and tells what is needed to run them under
-- their new attempt tokens. What another node claims right now is left to it. Rows are locked first and updated by their
-- ids, so that a claim never waits.
WITH free AS MATERIALIZED (
    SELECT id FROM taskmill_task
    WHERE id = ANY (taskmill_ids($1)) AND status = 'pending'
        AND (expires_at IS NULL OR expires_at > $2::bigint OR stop IS NOT NULL OR interrupted)
        AND {may_claim}
    FOR UPDATE SKIP LOCKED
), {claimed}
SELECT coalesce(json_agg({attempt}), '[]')
FROM claimed;

-- name: claim_fronts
-- The same for rows of [group, urgency, type, renewed, n, since]: the first n of each lane that have waited since then or
-- less, that nobody else claims right now, and that may still start at $2. Those with a budget of IO are claimed by their
-- ids only.
WITH free AS MATERIALIZED (
    SELECT front.id
    FROM jsonb_array_elements($1::jsonb) AS lane (value)
    CROSS JOIN LATERAL (
        SELECT t.id FROM taskmill_task AS t
        WHERE t.status = 'pending' AND t.stop IS NULL AND t.group_name = lane.value ->> 0
            AND t.urgency = (lane.value ->> 1)::smallint AND t.type = lane.value ->> 2
            AND (t.renewed_at IS NOT NULL) = (lane.value ->> 3)::boolean AND t.io IS NULL
            AND t.queued_at >= (lane.value ->> 5)::bigint
            AND (t.expires_at IS NULL OR t.expires_at > $2::bigint OR t.interrupted)
        ORDER BY t.queued_at, {place} LIMIT (lane.value ->> 4)::bigint
        FOR UPDATE SKIP LOCKED
    ) AS front
    WHERE {may_claim}
), {claimed}
SELECT coalesce(json_agg({attempt} ORDER BY urgency, queued_at, {place}), '[]')
FROM claimed;

-- name: claim
-- Nothing is left to do: looking and claiming are one statement here.
;
