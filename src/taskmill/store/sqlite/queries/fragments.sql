-- What several statements must say alike: `{word}` in a statement stands for it.

-- name: pauses_it
-- Whether a row of taskmill_control, called control, pauses the task whose columns are at hand: with all others, or with
-- those of its group or domain. A pause whose time is over pauses until somebody ends it.
control.paused_at IS NOT NULL AND (
    control.kind = 'scheduler' OR control.kind = 'group' AND control.name = group_name
    OR control.kind = 'domain' AND control.name = substr(type, 1, instr(type, '::') - 1));

-- name: owes_it
-- Whether a row of taskmill_ended_pause, called ended, has its time still to be given back to the task whose columns are at
-- hand.
id < ended.reached AND (
    ended.kind = 'scheduler' OR ended.kind = 'group' AND ended.name = group_name
    OR ended.kind = 'domain' AND ended.name = substr(type, 1, instr(type, '::') - 1));

-- name: paused_with_others_since
-- Since when the task has been paused with others; NULL if it is not.
(SELECT min(control.paused_at) FROM taskmill_control AS control WHERE {pauses_it});

-- name: clock_from
-- Where the time-to-live of a task counts from: its submission, that of an occurrence from when it is due. Of what was
-- due at once the place in the queue tells, which steps of the clock have moved.
CASE WHEN due_at IS NULL OR attempt > 0 THEN coalesce(renewed_at, queued_at)
    WHEN series_id IS NOT NULL THEN due_at ELSE created_at END;

-- name: budget
-- The budget of a task, where it is text that can be read. One that is not must not keep others from being read.
CASE WHEN io NOT GLOB '*[^ -~]*' THEN io END;

-- name: place
-- The second half of a task's place in the queue, after queued_at: the id of the task that had it first.
coalesce(place_id, id);

-- name: times
-- What is to be known about a waiting task whose times move.
json_array(
    id, group_name, type, status, created_at, queued_at, renewed_at, paused_at, expires_at, {clock_from}, {budget},
    {place});

-- name: every_lane
-- Every lane that has waiting tasks, by skipping through the index: a recursive WITH. In a damaged file the index and the
-- table may disagree, and the next lane may come before the last one: the walk ends there, at a lane without a group.
lane (group_name, urgency, type, renewed) AS (
    SELECT first.group_name, first.urgency, first.type, first.renewed_at IS NOT NULL FROM (
        SELECT group_name, urgency, type, renewed_at FROM taskmill_task
        WHERE status = 'pending' AND stop IS NULL
        ORDER BY group_name, urgency, type, renewed_at IS NOT NULL LIMIT 1
    ) AS first
    UNION ALL
    SELECT
        CASE WHEN (following.group_name, following.urgency, following.type, following.renewed_at IS NOT NULL)
            > (lane.group_name, lane.urgency, lane.type, lane.renewed) THEN following.group_name END,
        following.urgency, following.type, following.renewed_at IS NOT NULL
    FROM lane
    JOIN taskmill_task AS following ON following.id = coalesce(
        (
            SELECT id FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency = lane.urgency
                AND type = lane.type AND (renewed_at IS NOT NULL) > lane.renewed
            ORDER BY renewed_at IS NOT NULL LIMIT 1
        ),
        (
            SELECT id FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency = lane.urgency
                AND type > lane.type
            ORDER BY type, renewed_at IS NOT NULL LIMIT 1
        ),
        (
            SELECT id FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency > lane.urgency
            ORDER BY urgency, type, renewed_at IS NOT NULL LIMIT 1
        ),
        (
            SELECT id FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name > lane.group_name
            ORDER BY group_name, urgency, type, renewed_at IS NOT NULL LIMIT 1
        )
    )
);

-- name: lanes_found
(SELECT json_group_array(json_array(group_name, urgency, type, json(iif(renewed, 'true', 'false')))) FROM lane);

-- name: others_at_work
-- [[group, type, count, most urgent] of what other nodes run, how many slots they have]; ?1 are our slots. One process
-- dispatches a file.
json_array(json_array(), 0 * coalesce(?1, 0));

-- name: may_expire
-- True if the task t ends when its deadline has passed: it has not started, or waits for a retry. One that was asked to stop
-- ends that way, and one that was started in time and interrupted runs on.
t.expires_at IS NOT NULL AND t.status IN ('pending', 'scheduled', 'blocked')
    AND t.stop IS NULL AND t.interrupted = 0;

-- name: is_expired
-- True if the deadline of the task t has passed at {now}, whether or not it was moved to history. Its time stands still from
-- when something pauses it. What pauses that are over still owe it is not known here; it is {owed} ms at most.
({may_expire} AND t.expires_at <= {now}
    AND (t.expires_at + {owed} <= {now} OR NOT EXISTS (
        SELECT 1 FROM taskmill_ended_pause AS ended WHERE {owes_it}
    ) AND NOT EXISTS (
        SELECT 1 FROM taskmill_control AS control WHERE {pauses_it} AND control.resume_at <= {now}
    ))
    AND NOT EXISTS (
        SELECT 1 FROM taskmill_control AS control
        WHERE {pauses_it} AND (control.resume_at IS NULL OR control.resume_at > {now})
            AND max(control.paused_at, coalesce(t.paused_at, control.paused_at)) < t.expires_at
    ));

-- name: first_due
SELECT min(due_at) FROM taskmill_task WHERE status = 'scheduled';

-- name: first_expiry
SELECT min(t.expires_at) FROM taskmill_task AS t WHERE {may_expire} AND t.frozen = 0;

-- name: begins_at_an_instant
-- True if the first occurrence of a series is due at an instant, and has not begun.
EXISTS (
    SELECT 1 FROM taskmill_task AS task
    WHERE task.series_id = taskmill_series.id AND task.series_id IS NOT NULL AND task.due_is_relative = 0
        AND task.due_at = taskmill_series.due_at AND taskmill_series.runs = 1
        AND task.status IN ('scheduled', 'blocked', 'paused')
);

-- name: may_skip
-- True if a beat of the series is skipped when it comes while the last occurrence is active.
paused = 0 AND (max_runs IS NULL OR runs < max_runs);

-- name: first_beat
SELECT min(due_at + every_ms) FROM taskmill_series WHERE {may_skip};

-- name: hooks_due
-- Tasks that were asked to stop and whose hook may run now.
SELECT json_group_array(id) FROM taskmill_task WHERE status = 'pending' AND stop IS NOT NULL;

-- name: hook_left
-- True if the task t has started before and its type has an on_cancel hook, or may have one: no program has said so.
(t.interrupted OR t.retries > 0 OR t.finalizing OR t.status = 'waiting') AND coalesce(
    (SELECT known.defaults ->> 'has_on_cancel' FROM taskmill_type AS known WHERE known.name = t.type), 1);

-- name: made_way
-- [id, for what] of tasks that made way.
SELECT json_group_array(json_array(id, preempted)) FROM taskmill_task WHERE status = 'paused' AND preempted > 0;

-- name: description
-- What events and callers are told about the active task that is called t.
json_array(
    t.id, t.type, t.key, t.label, t.group_name, t.priority, t.urgency, t.tags, t.created_at,
    coalesce(t.renewed_at, t.queued_at));

-- name: awaited
-- The given tasks and whatever they wait for, directly or through others: dependencies, children, and the
-- run that an added one follows.
awaited (id) AS (
    SELECT value FROM json_each(?1)
    UNION
    SELECT edge.on_id FROM awaited JOIN taskmill_dependency AS edge ON edge.task_id = awaited.id AND edge.open = 1
    UNION
    SELECT child.id FROM awaited JOIN taskmill_task AS child ON child.parent_id = awaited.id
    UNION
    SELECT before.id FROM awaited JOIN taskmill_task AS added ON added.id = awaited.id
    JOIN taskmill_task AS before ON before.id = added.gate_id AND before.gave_key = 1 AND before.stop IS NULL
);

-- name: own_pause
-- From when to when a task t was paused alone, at ?2: what a pause of its scheduler, domain or group covers is given back
-- when that ends.
coalesce(t.paused_at, ?2) AS since,
        min(?2, coalesce({paused_with_others_since}, ?2)) AS until;

-- name: pause_given_back
-- It has neither waited nor come closer to its deadline during the pause that is called own.
queued_at = queued_at + max(0, own.until - own.since),
    renewed_at = renewed_at + max(0, own.until - own.since),
    expires_at = expires_at + max(0, own.until - own.since),
    paused_at = max(own.until, own.since);

-- name: stop_requests
-- Running tasks that someone, perhaps another process, has asked to stop.
SELECT json_group_array(json_array(id, stop)) FROM taskmill_task WHERE status = 'running' AND stop IS NOT NULL;

-- name: running_urgencies
SELECT json_group_array(json_array(id, priority, urgency)) FROM taskmill_task WHERE status = 'running';
