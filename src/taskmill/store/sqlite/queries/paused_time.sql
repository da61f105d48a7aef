-- name: end_pause
-- Record that the scope ?1, ?2 was paused from ?3 to ?4. Time is to be given back to every task with an id below
-- "reached", as far as the pause covers it.
INSERT INTO taskmill_ended_pause (kind, name, since, until, reached)
SELECT ?1, ?2, ?3, ?4, coalesce(max(id), 0) + 1 FROM taskmill_task WHERE true
ON CONFLICT (kind, name, since) DO UPDATE SET until = max(until, excluded.until), reached = excluded.reached;

-- name: ended_pauses
-- Return [kind, name, since, until] of every ended pause that still has to give time back.
SELECT json_group_array(json_array(kind, name, since, until)) FROM (
    SELECT kind, name, since, until FROM taskmill_ended_pause ORDER BY since, kind, name
);

-- name: first_ended_pause
-- Return [kind, name, since, reached] of the ended pause that is worked on next.
SELECT kind, name, since, reached FROM taskmill_ended_pause ORDER BY since, kind, name LIMIT 1;

-- name: next_owed
-- Scan ?4 tasks with ids below ?3, from the newest to the oldest. Return how many there were, the id of the last one,
-- and the times of the first ?5 that belong to the scope ?1, ?2 and are not running.
WITH looked_at AS MATERIALIZED (SELECT id FROM taskmill_task WHERE id < ?3 ORDER BY id DESC LIMIT ?4)
SELECT (SELECT count(*) FROM looked_at), (SELECT min(id) FROM looked_at), (
    SELECT json_group_array(json(times)) FROM (
        SELECT {times} AS times
        FROM taskmill_task AS t
        WHERE id < ?3 AND id >= (SELECT min(id) FROM looked_at) AND status <> 'running'
            AND (?1 = 'scheduler' OR ?1 = 'group' AND group_name = ?2
                OR ?1 = 'domain' AND type >= ?2 || '::' AND type < ?2 || ':;')
        ORDER BY id DESC LIMIT ?5
    )
);

-- name: owed_to
-- Return the times of those of the given tasks that are not running.
SELECT json_group_array(json({times})) FROM taskmill_task
WHERE id IN (SELECT value FROM json_each(?1)) AND status <> 'running';

-- name: give_back
-- Store the moved times of tasks, for rows of [id, queued_at, renewed_at, expires_at, paused_at]. Pauses before
-- paused_at are settled by that.
UPDATE taskmill_task SET
    queued_at = given.value ->> 1,
    renewed_at = given.value ->> 2,
    expires_at = given.value ->> 3,
    paused_at = given.value ->> 4,
    frozen = 0
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: thaw
-- Let the given tasks expire again: their paused time was given back.
UPDATE taskmill_task SET frozen = 0 WHERE id IN (SELECT value FROM json_each(?1)) AND frozen = 1;

-- name: reach
-- Record that the pause ?1, ?2, ?3 has given its time back to tasks down to id ?4.
UPDATE taskmill_ended_pause SET reached = ?4 WHERE kind = ?1 AND name = ?2 AND since = ?3;

-- name: forget_ended_pause
DELETE FROM taskmill_ended_pause WHERE kind = ?1 AND name = ?2 AND since = ?3;

-- name: fronts_owed
-- Return the times of the first ?2 tasks of each given lane. Skip tasks whose deadlines are at or before ?3.
SELECT json_group_array(json_array(lane.value ->> 0, lane.value ->> 1, lane.value ->> 2,
    json(iif(lane.value ->> 3, 'true', 'false')), json((
        SELECT json_group_array(json(front.times)) FROM (
            SELECT {times} AS times FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name = lane.value ->> 0 AND urgency = lane.value ->> 1
                AND type = lane.value ->> 2 AND (renewed_at IS NOT NULL) = (lane.value ->> 3)
                AND (expires_at IS NULL OR expires_at > ?3 OR interrupted)
            ORDER BY queued_at, {place} LIMIT ?2
        ) AS front
    ))))
FROM json_each(?1) AS lane;

-- name: shift_ended_pauses
-- Move ended pauses by ?1 ms after a step of the wall clock.
UPDATE taskmill_ended_pause SET since = since + ?1, until = until + ?1;
