-- Fragments that several statements share: `{word}` in a statement is replaced by the fragment of that name.

-- name: pauses_it
-- True if the taskmill_control row "control" pauses the task whose columns are in scope, through the scheduler, its
-- group or its domain. A timed pause still counts after its time, until it is ended.
control.paused_at IS NOT NULL AND (
    control.kind = 'scheduler' OR control.kind = 'group' AND control.name = group_name
    OR control.kind = 'domain' AND control.name = substr(type, 1, instr(type, '::') - 1));

-- name: owes_it
-- True if the taskmill_ended_pause row "ended" still has to give its time back to the task whose columns are in scope.
id < ended.reached AND (
    ended.kind = 'scheduler' OR ended.kind = 'group' AND ended.name = group_name
    OR ended.kind = 'domain' AND ended.name = substr(type, 1, instr(type, '::') - 1));

-- name: paused_with_others_since
-- When the pause of the task's scheduler, domain or group began; NULL if there is none.
(SELECT min(control.paused_at) FROM taskmill_control AS control WHERE {pauses_it});

-- name: clock_from
-- When the time-to-live of a task started: at its submission, or for an occurrence of a series when it was due. For a
-- task that was due at once, or has started before, it is the time at which it was queued, which, unlike created_at,
-- moves with steps of the wall clock.
CASE WHEN due_at IS NULL OR attempt > 0 THEN coalesce(renewed_at, queued_at)
    WHEN series_id IS NOT NULL THEN due_at ELSE created_at END;

-- name: budget
-- The IO budget of a task, or NULL if the stored text is damaged: that must not stop the reading of other tasks.
CASE WHEN io NOT GLOB '*[^ -~]*' THEN io END;

-- name: place
-- The second part of a task's position in the queue, after queued_at: the id of the task that had the position first.
coalesce(place_id, id);

-- name: times
-- The stored times of a waiting task, as needed to move them.
json_array(
    id, group_name, type, status, created_at, queued_at, renewed_at, paused_at, expires_at, {clock_from}, {budget},
    {place});

-- name: every_lane
-- Recursive CTE: every lane that has waiting tasks, found by skipping through the index. In a damaged file the index may
-- disagree with the table and lead back to an earlier lane: the recursion ends there, with a lane whose group is NULL.
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
-- [[group, type, count, most urgent] of tasks running on other nodes, slots of other nodes], ?1 being the slots here.
-- Both are empty: only one process dispatches a file.
json_array(json_array(), 0 * coalesce(?1, 0));

-- name: may_expire
-- True if task t ends when its deadline passes: it has not started, or waits for a retry. A task that was asked to stop
-- ends for that reason instead. A task that started in time and was interrupted may still run.
t.expires_at IS NOT NULL AND t.status IN ('pending', 'scheduled', 'blocked')
    AND t.stop IS NULL AND t.interrupted = 0;

-- name: is_expired
-- True if the deadline of task t has passed at {now}, whether or not it is in history yet. A pause stops the clock of
-- the deadline. Ended pauses may still owe the task time, at most {owed} ms; the exact amount is not known here.
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
-- True if the first occurrence of a series is due at a fixed instant and has not started.
EXISTS (
    SELECT 1 FROM taskmill_task AS task
    WHERE task.series_id = taskmill_series.id AND task.series_id IS NOT NULL AND task.due_is_relative = 0
        AND task.due_at = taskmill_series.due_at AND taskmill_series.runs = 1
        AND task.status IN ('scheduled', 'blocked', 'paused')
);

-- name: may_skip
-- True if the series skips a due time that comes while its last occurrence is still active.
paused = 0 AND (max_runs IS NULL OR runs < max_runs);

-- name: first_beat
SELECT min(due_at + every_ms) FROM taskmill_series WHERE {may_skip};

-- name: hooks_due
-- Ids of tasks that were asked to stop and whose on_cancel hook can run now.
SELECT json_group_array(id) FROM taskmill_task WHERE status = 'pending' AND stop IS NOT NULL;

-- name: hook_left
-- True if task t has started before and its type has an on_cancel hook, or may have one because no program has
-- published the type.
(t.interrupted OR t.retries > 0 OR t.finalizing OR t.status = 'waiting') AND coalesce(
    (SELECT known.defaults ->> 'has_on_cancel' FROM taskmill_type AS known WHERE known.name = t.type), 1);

-- name: made_way
-- [id, cause] of preempted tasks.
SELECT json_group_array(json_array(id, preempted)) FROM taskmill_task WHERE status = 'paused' AND preempted > 0;

-- name: description
-- The description of active task t for events and callers.
json_array(
    t.id, t.type, t.key, t.label, t.group_name, t.priority, t.urgency, t.tags, t.created_at,
    coalesce(t.renewed_at, t.queued_at));

-- name: awaited
-- Recursive CTE: the given tasks and every task that they wait for, directly or indirectly. A task waits for its
-- dependencies and its children, and an added run waits for the run before it.
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
-- The span in which task t was paused by itself, until ?2. Time that is also covered by a pause of its scheduler,
-- domain or group is left out: it is given back when that pause ends.
coalesce(t.paused_at, ?2) AS since,
        min(?2, coalesce({paused_with_others_since}, ?2)) AS until;

-- name: pause_given_back
-- Assignments that give back the pause "own": the task has neither aged nor come closer to its deadline in that time.
queued_at = queued_at + max(0, own.until - own.since),
    renewed_at = renewed_at + max(0, own.until - own.since),
    expires_at = expires_at + max(0, own.until - own.since),
    paused_at = max(own.until, own.since);

-- name: stop_requests
-- [id, reason] of running tasks that were asked to stop, possibly by another process.
SELECT json_group_array(json_array(id, stop)) FROM taskmill_task WHERE status = 'running' AND stop IS NOT NULL;

-- name: running_urgencies
SELECT json_group_array(json_array(id, priority, urgency)) FROM taskmill_task WHERE status = 'running';
