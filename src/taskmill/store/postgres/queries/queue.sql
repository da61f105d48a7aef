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
-- run]. $1 is the number of slots here, as in elsewhere.
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
-- Return the first $2 tasks of each given lane. Skip tasks whose deadline has passed at $3: the expiry sweep has not
-- reached them yet, and they must not block the tasks behind them.
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
-- Return at most $2 scheduled tasks that are due at $1. Skip tasks that another node is promoting at the moment.
SELECT coalesce(json_agg(id), '[]') FROM (
    SELECT id FROM taskmill_task WHERE status = 'scheduled' AND due_at <= $1::bigint
    ORDER BY due_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED
) AS due;

-- name: promote
UPDATE taskmill_task SET status = 'pending' WHERE id = ANY (taskmill_ids($1)) AND status = 'scheduled';

-- name: expired
-- Return at most $2 waiting tasks whose deadlines have passed at $1, as [id, has live children].
SELECT coalesce(json_agg(json_build_array(id, children > children_ended)), '[]') FROM (
    SELECT id, children, children_ended FROM taskmill_task AS t
    WHERE {may_expire} AND NOT t.frozen AND t.expires_at <= $1::bigint
    ORDER BY t.expires_at LIMIT $2::bigint
) AS expired;

-- name: late
-- Return those of the given tasks whose stored deadlines have passed at $2, paused or not.
SELECT coalesce(json_agg(id), '[]') FROM taskmill_task AS t
WHERE id = ANY (taskmill_ids($1)) AND {may_expire} AND t.expires_at <= $2::bigint;

-- name: expired_among
-- Return those of the given tasks that have expired, as [id, has live children].
SELECT coalesce(json_agg(json_build_array(id, children > children_ended)), '[]') FROM taskmill_task AS t
WHERE id = ANY (taskmill_ids(?)) AND {is_expired};

-- name: shift_deadlines
-- Move deadlines by $1 ms after a step of the wall clock, because a time-to-live is a duration. The deadline of a
-- series' first occurrence counts from its due time; if that is a fixed instant, neither moves.
UPDATE taskmill_task SET expires_at = expires_at + $1::bigint
WHERE expires_at IS NOT NULL
    AND (series_id IS NULL OR due_is_relative OR status NOT IN ('scheduled', 'blocked'));

-- name: shift_relative
-- Move due times that were given as a delay by $1 ms after a step of the wall clock.
UPDATE taskmill_task SET due_at = due_at + $1::bigint WHERE due_is_relative AND due_at IS NOT NULL;

-- name: shift_waits
-- Move waiting times by $1 ms after a step of the wall clock, so that ages and the order of the queue stay the same. A
-- task scheduled for a fixed instant starts to wait at that instant, so it is left out.
UPDATE taskmill_task SET
    queued_at = queued_at + $1::bigint, renewed_at = renewed_at + $1::bigint, paused_at = paused_at + $1::bigint,
    started_at = CASE WHEN status = 'running' THEN started_at + $1::bigint ELSE started_at END
WHERE (due_is_relative OR due_at IS NULL OR status <> 'scheduled');

-- name: claimable
-- Claim those of the given tasks that still wait for the node of this session, and return what is needed to run them
-- under their new attempt tokens. Skip tasks that another node is claiming at the moment. Rows are locked first and
-- updated by id, so that a claim never waits.
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
-- Claim from the front of lanes, for rows of [group, urgency, type, renewed, n, since]: the first n tasks queued at or
-- after "since", skipping tasks that another node is claiming and tasks whose deadline has passed at $2. Tasks with an
-- IO budget are claimed by id only.
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
-- Nothing to do: claimable has claimed the tasks already.
;
