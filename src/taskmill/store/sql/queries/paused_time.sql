-- name: end_pause
-- Record that the scope $1, $2 was paused from $3 to $4. Time is to be given back to every task with an id below
-- "reached", as far as the pause covers it.
INSERT INTO taskmill_ended_pause AS ended (kind, name, since, until, reached)
SELECT $1::text, $2::text, $3::bigint, $4::bigint, coalesce(max(id), 0) + 1 FROM taskmill_task WHERE true
ON CONFLICT (kind, name, since) DO UPDATE SET
    until = greatest(ended.until, excluded.until), reached = excluded.reached;

-- name: ended_pauses
-- Return [kind, name, since, until] of every ended pause that still has to give time back.
SELECT json_list(json_row(kind, name, since, until) ORDER BY since, kind, name)
FROM (SELECT * FROM taskmill_ended_pause ORDER BY since, kind, name) AS ended;

-- name: first_ended_pause
-- Return [kind, name, since, reached] of the ended pause that is worked on next.
SELECT kind, name, since, reached FROM taskmill_ended_pause ORDER BY since, kind, name LIMIT 1;

-- name: next_owed
-- Scan $4 tasks with ids below $3, from the newest to the oldest. Return how many there were, the id of the last one,
-- and the times of the first $5 that belong to the scope $1, $2 and are not running.
WITH looked_at AS MATERIALIZED (SELECT id FROM taskmill_task WHERE id < $3::bigint ORDER BY id DESC LIMIT $4::bigint)
SELECT (SELECT count(*) FROM looked_at), (SELECT min(id) FROM looked_at), (
    SELECT json_list(times::json ORDER BY id DESC)::text FROM (
        SELECT id, {times} AS times
        FROM taskmill_task AS t
        WHERE id < $3::bigint AND id >= (SELECT min(id) FROM looked_at) AND status <> 'running'
            AND ($1::text = 'scheduler' OR $1::text = 'group' AND group_name = $2::text
                OR $1::text = 'domain' AND type >= $2::text || '::' AND type < $2::text || ':;')
        ORDER BY id DESC LIMIT $5::bigint
    ) AS owed
);

-- name: owed_to
-- Return the times of those of the given tasks that are not running.
SELECT json_list({times}) FROM taskmill_task
WHERE id IN ids($1) AND status <> 'running';

-- name: give_back
-- Store the moved times of tasks. Pauses before paused_at are settled by that.
UPDATE taskmill_task AS t SET
    queued_at = given.queued_at,
    renewed_at = given.renewed_at,
    expires_at = given.expires_at,
    paused_at = given.paused_at,
    frozen = false
FROM rows($1, id bigint, queued_at bigint, renewed_at bigint, expires_at bigint, paused_at bigint) AS given
WHERE t.id = given.id;

-- name: thaw
-- Let the given tasks expire again: their paused time was given back.
UPDATE taskmill_task SET frozen = false WHERE id IN ids($1) AND frozen = true;

-- name: reach
-- Record that the pause $1, $2, $3 has given its time back to tasks down to id $4.
UPDATE taskmill_ended_pause SET reached = $4::bigint WHERE kind = $1::text AND name = $2::text AND since = $3::bigint;

-- name: forget_ended_pause
DELETE FROM taskmill_ended_pause WHERE kind = $1::text AND name = $2::text AND since = $3::bigint;

-- name: fronts_owed
-- Return the times of the first $2 tasks of each given lane. Skip tasks whose deadlines are at or before $3.
SELECT json_list(json_row(lane.group_name, lane.urgency, lane.type, {is_renewed}, (
    SELECT json_list(front.times::json ORDER BY front.queued_at, front.place) FROM (
        SELECT queued_at, {place} AS place, {times} AS times FROM taskmill_task
        WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency = lane.urgency
            AND type = lane.type AND (renewed_at IS NOT NULL) = lane.renewed
            AND (expires_at IS NULL OR expires_at > $3::bigint OR interrupted)
        ORDER BY queued_at, {place} LIMIT $2::bigint
    ) AS front
)::json))
FROM rows($1, group_name text, urgency smallint, type text, renewed boolean) AS lane;

-- name: shift_ended_pauses
-- Move ended pauses by $1 ms after a step of the wall clock.
UPDATE taskmill_ended_pause SET since = since + $1::bigint, until = until + $1::bigint;
