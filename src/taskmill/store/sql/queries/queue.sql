-- name: lanes
-- Return every lane that has waiting tasks. A lane is the queue of one group, urgency and type; tasks whose aging was
-- restarted (renewed) have a lane of their own. The query skips through the index, so its cost grows with lanes, not
-- with tasks. The last three values are queued_at, renewed_at and paused_at of the first task of the lane. An
-- answer about a damaged file has the lanes that were found before the damage.
WITH RECURSIVE {every_lane}
SELECT json_list(json_row(group_name, urgency, type, {is_renewed}, queued_at, renewed_at, paused_at)) FROM lane
WHERE group_name IS NOT NULL;

-- name: survey
-- Return everything the dispatcher needs for planning, as of one moment: [lanes, ids of due hooks, next due tasks, next
-- deadline, next due time of a series, [id, cause] of preempted tasks, [id, reason] of running tasks that were asked to
-- stop, [id, priority, urgency] of the tasks running here, load of other nodes, waiting types that other nodes can
-- run]. $1 is the number of slots here, as in elsewhere.
-- sqlite:
WITH RECURSIVE {every_lane}
SELECT json_row(
    json({lanes_found}), json(({hooks_due})), json(({next_due_tasks})), ({first_expiry}), ({first_beat}), json(({made_way})),
    json(({stop_requests})), json(({running_urgencies})), {others_at_work}, json_row());
-- postgres:
WITH RECURSIVE {every_lane}, {own_slots}
SELECT json_row(
    {lanes_found}, ({hooks_due}), ({next_due_tasks}), ({first_expiry}), ({first_beat}), ({made_way}), ({stop_requests}),
    ({running_urgencies}), {others_at_work},
    (
        SELECT json_list(DISTINCT known.type)
        FROM taskmill_node AS node CROSS JOIN LATERAL json_array_elements_text(node.types::json) AS known (type)
        WHERE node.id IS DISTINCT FROM {this_node} AND known.type IN (SELECT lane.type FROM lane)
    )
);

-- name: newest
-- Return [highest id that a task has had, how often other processes have changed places of stored tasks].
-- sqlite:
SELECT json_row(coalesce({last_id}, 0), coalesce((SELECT CAST(value AS bigint) FROM taskmill_setting WHERE name = 'moves'), 0));
-- postgres: nothing to do; ids are not committed in order, so they do not show what is new.

-- name: newer
-- Return at most $2 active tasks with ids above $1, as [id, group, urgency, type, queued_at, renewed_at, due_at,
-- expires_at, place, budget]; due_at is NULL for tasks in the queue.
-- sqlite:
SELECT json_list(json_row(
    id, group_name, urgency, type, queued_at, renewed_at, CASE WHEN status = 'scheduled' THEN due_at END, expires_at,
    {place}, {budget}))
FROM (
    SELECT * FROM taskmill_task
    WHERE id > $1 AND status IN ('pending', 'scheduled') AND stop IS NULL ORDER BY id LIMIT $2
);
-- postgres: nothing to do; other nodes name their new tasks.

-- name: queued_elsewhere
-- Return [those of the given tasks that wait, as in newer; true if any of them was asked to stop or preempted].
-- sqlite: nothing to do; new tasks are found by their ids.
-- postgres: rows are found by id first, as in in_queue.
WITH given AS MATERIALIZED (SELECT * FROM taskmill_task WHERE id IN ids($1))
SELECT json_row(
    (
        SELECT json_list(json_row(
            id, group_name, urgency, type, queued_at, renewed_at, CASE WHEN status = 'scheduled' THEN due_at END,
            expires_at, {place}, {budget}) ORDER BY id)
        FROM given
        WHERE status IN ('pending', 'scheduled') AND stop IS NULL
    ),
    EXISTS (SELECT 1 FROM given WHERE stop IS NOT NULL OR preempted > 0)
);

-- name: note_moves
-- Note that this process, which does not dispatch, may have changed the places of stored tasks.
-- sqlite:
INSERT INTO taskmill_setting (name, value) VALUES ('moves', '1')
ON CONFLICT (name) DO UPDATE SET value = CAST(value AS bigint) + 1;
-- postgres: nothing to do; notifications report it.

-- name: front_of_lanes
-- Return the first $2 tasks of each given lane. Skip tasks whose deadline has passed at $3: the expiry sweep has not
-- reached them yet, and they must not block the tasks behind them.
SELECT json_list(json_row(lane.group_name, lane.urgency, lane.type, {is_renewed}, (
    SELECT json_list(json_row(front.queued_at, front.place, front.id, front.renewed_at, front.io)) FROM (
        SELECT queued_at, {place} AS place, id, renewed_at, {budget} AS io FROM taskmill_task
        WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency = lane.urgency
            AND type = lane.type AND (renewed_at IS NOT NULL) = lane.renewed
            AND (expires_at IS NULL OR expires_at > $3::bigint OR interrupted)
        ORDER BY queued_at, {place} LIMIT $2::bigint
    ) AS front
)::json))
FROM rows($1, group_name text, urgency smallint, type text, renewed boolean) AS lane;

-- name: next_due
{next_due_tasks};

-- name: next_expiry
{first_expiry};

-- name: next_beat
{first_beat};

-- name: due
-- Return at most $2 scheduled tasks that are due at $1.
-- sqlite:
SELECT json_list(id) FROM (
    SELECT id FROM taskmill_task WHERE status = 'scheduled' AND due_at <= $1 ORDER BY due_at LIMIT $2
);
-- postgres: skip tasks that another node is promoting at the moment.
SELECT json_list(id) FROM (
    SELECT id FROM taskmill_task WHERE status = 'scheduled' AND due_at <= $1::bigint
    ORDER BY due_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED
) AS due;

-- name: promote
-- sqlite:
UPDATE taskmill_task SET status = 'pending' WHERE id IN ids($1);
-- postgres: unless another node has promoted them.
UPDATE taskmill_task SET status = 'pending' WHERE id IN ids($1) AND status = 'scheduled';

-- name: expired
-- Return at most $2 waiting tasks whose deadlines have passed at $1, as [id, has live children].
SELECT json_list(json_row(id, children > children_ended)) FROM (
    SELECT id, children, children_ended FROM taskmill_task AS t
    WHERE {may_expire} AND t.frozen = false AND t.expires_at <= $1::bigint
    ORDER BY t.expires_at LIMIT $2::bigint
) AS expired;

-- name: late
-- Return those of the given tasks whose stored deadlines have passed at $2, paused or not.
SELECT json_list(id) FROM taskmill_task AS t
WHERE id IN ids($1) AND {may_expire} AND t.expires_at <= $2::bigint;

-- name: expired_among
-- Return those of the given tasks that have expired, as [id, has live children].
SELECT json_list(json_row(id, children > children_ended)) FROM taskmill_task AS t
WHERE id IN ids(?) AND {is_expired};

-- name: shift_deadlines
-- Move deadlines by $1 ms after a step of the wall clock, because a time-to-live is a duration. The deadline of a
-- series' first occurrence counts from its due time; if that is a fixed instant, neither moves.
UPDATE taskmill_task SET expires_at = expires_at + $1::bigint
WHERE expires_at IS NOT NULL
    AND (series_id IS NULL OR due_is_relative = true OR status NOT IN ('scheduled', 'blocked'));

-- name: shift_relative
-- Move due times that were given as a delay by $1 ms after a step of the wall clock.
UPDATE taskmill_task SET due_at = due_at + $1::bigint WHERE due_is_relative = true AND due_at IS NOT NULL;

-- name: shift_waits
-- Move waiting times by $1 ms after a step of the wall clock, so that ages and the order of the queue stay the same. A
-- task scheduled for a fixed instant starts to wait at that instant, so only its submission moves: its time-to-live
-- counts from there. Without that, paused time would be added to its deadline wrongly.
UPDATE taskmill_task SET
    created_at = created_at + $1::bigint, paused_at = paused_at + $1::bigint,
    queued_at = queued_at + CASE WHEN {waits_for_an_instant} THEN 0 ELSE $1::bigint END,
    renewed_at = renewed_at + CASE WHEN {waits_for_an_instant} THEN 0 ELSE $1::bigint END,
    started_at = CASE WHEN status = 'running' THEN started_at + $1::bigint ELSE started_at END;

-- name: claimable
-- Return what is needed to run those of the given tasks that still wait at $2, with their new attempt tokens. $3 names
-- those among them that are prefetched.
-- sqlite:
SELECT json_list(json_row(
    id, attempt + 1, type, key, label, group_name, priority, payload, tags, overrides, retries, crashes,
    created_at, queued_at, due_at, coalesce(expires_at, $2 + ttl_ms), $2, parent_id, saved, replaced, stop,
    last_error, urgency,
    json(CASE WHEN children OR finalizing THEN json_row(children, finalizing, outcome ->> 1) END),
    awaited OR parent_id IS NOT NULL OR series_id IS NOT NULL OR children OR cron IS NOT NULL, renewed_at,
    {place}, io, cron, id IN ids($3), CASE WHEN stop IS NULL AND NOT interrupted THEN expires_at END))
FROM taskmill_task
WHERE id IN ids($1) AND status = 'pending'
    AND (expires_at IS NULL OR expires_at > $2 OR stop IS NOT NULL OR interrupted)
    AND ({may_prefetch} OR NOT id IN ids($3));
-- postgres: this claims them too, for the node of this session. Skip tasks that another node is claiming at the moment.
-- Rows are locked first and updated by id, so that a claim never waits.
WITH free AS MATERIALIZED (
    SELECT id, id IN ids($3) AS prefetched FROM taskmill_task
    WHERE id IN ids($1) AND status = 'pending'
        AND (expires_at IS NULL OR expires_at > $2::bigint OR stop IS NOT NULL OR interrupted)
        AND ({may_prefetch} OR NOT id IN ids($3))
        AND {may_claim}
    FOR UPDATE SKIP LOCKED
), {claimed}
SELECT json_list({attempt})
FROM claimed;

-- name: claim_fronts
-- Claim from the front of lanes: the first n tasks queued at or after "since", skipping tasks that another node is
-- claiming and tasks whose deadline has passed at $2. There are slots for the first of them; the others are prefetched.
-- Tasks with an IO budget are claimed by id only. Nothing is claimed if the controls do not have version $3, if given.
-- sqlite: nothing to do; only nodes that claim from the same lanes need it.
-- postgres:
WITH free AS MATERIALIZED (
    SELECT id, prefetched FROM (
        SELECT
            front.*,
            row_number() OVER (PARTITION BY lane.number ORDER BY front.queued_at, front.place) > lane.slots AS prefetched
        FROM (
            SELECT given.*, row_number() OVER () AS number
            FROM rows($1,
                group_name text, urgency smallint, type text, renewed boolean, n bigint, slots bigint, since bigint
            ) AS given
        ) AS lane
        CROSS JOIN LATERAL (
            SELECT t.id, t.queued_at, {place} AS place, {may_prefetch} AS may_prefetch FROM taskmill_task AS t
            WHERE t.status = 'pending' AND t.stop IS NULL AND t.group_name = lane.group_name
                AND t.urgency = lane.urgency AND t.type = lane.type AND (t.renewed_at IS NOT NULL) = lane.renewed
                AND t.io IS NULL AND t.queued_at >= lane.since
                AND (t.expires_at IS NULL OR t.expires_at > $2::bigint OR t.interrupted)
            ORDER BY t.queued_at, {place} LIMIT lane.n
            FOR UPDATE SKIP LOCKED
        ) AS front
    ) AS first
    WHERE (may_prefetch OR NOT prefetched) AND {may_claim} AND ($3::bigint IS NULL OR EXISTS (
        SELECT 1 FROM taskmill_setting WHERE name = 'controls_version' AND CAST(value AS bigint) = $3::bigint))
), {claimed}
SELECT json_list({attempt} ORDER BY urgency, queued_at, {place})
FROM claimed;

-- name: claim
-- sqlite:
UPDATE taskmill_task SET
    status = 'running', attempt = attempt + 1, started_at = CASE WHEN NOT id IN ids($3) THEN $2 END,
    expires_at = coalesce(expires_at, $2 + ttl_ms)
WHERE id IN ids($1) AND status = 'pending'
    AND (expires_at IS NULL OR expires_at > $2 OR stop IS NOT NULL OR interrupted)
    AND ({may_prefetch} OR NOT id IN ids($3));
-- postgres: nothing to do; claimable has claimed the tasks already.
