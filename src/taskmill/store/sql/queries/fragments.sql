-- Fragments that several statements share: `{word}` in a statement is replaced by the fragment of that name.

-- name: domain
-- The domain of the task whose columns are in scope.
-- sqlite:
substr(type, 1, instr(type, '::') - 1);
-- postgres:
split_part(type, '::', 1);

-- name: pauses_it
-- True if the taskmill_control row "control" pauses the task whose columns are in scope, through the scheduler, its
-- group or its domain. A timed pause still counts after its time, until it is ended.
control.paused_at IS NOT NULL AND (
    control.kind = 'scheduler' OR control.kind = 'group' AND control.name = group_name
    OR control.kind = 'domain' AND control.name = {domain});

-- name: owes_it
-- True if the taskmill_ended_pause row "ended" still has to give its time back to the task whose columns are in scope.
id < ended.reached AND (
    ended.kind = 'scheduler' OR ended.kind = 'group' AND ended.name = group_name
    OR ended.kind = 'domain' AND ended.name = {domain});

-- name: paused_with_others_since
-- When the pause of the task's scheduler, domain or group began; NULL if there is none.
(SELECT min(control.paused_at) FROM taskmill_control AS control WHERE {pauses_it});

-- name: clock_from
-- When the time-to-live of a task started: at its submission, or for an occurrence of a series when it was due. For a
-- task that was due at once, or has started before, it is the time at which it was queued, which, unlike created_at,
-- moves when paused time is given back. All of these times move with steps of the wall clock.
CASE WHEN due_at IS NULL OR attempt > 0 THEN coalesce(renewed_at, queued_at)
    WHEN series_id IS NOT NULL THEN due_at ELSE created_at END;

-- name: waits_for_an_instant
-- True if the task whose columns are in scope waits for a fixed instant of the wall clock.
(status = 'scheduled' AND due_is_relative = false AND due_at IS NOT NULL);

-- name: budget
-- The IO budget of a task.
-- sqlite: NULL if the stored text is damaged, because that must not stop the reading of other tasks.
CASE WHEN io NOT GLOB '*[^ -~]*' THEN io END;
-- postgres: the server guarantees that it is valid text.
io;

-- name: place
-- The second part of a task's position in the queue, after queued_at: the id of the task that had the position first.
coalesce(place_id, id);

-- name: given_ids
-- The ids of the parameter $1, as a table with the column "id".
-- sqlite:
SELECT value AS id FROM json_each($1);
-- postgres:
SELECT given.id FROM unnest(taskmill_ids($1)) AS given (id);

-- name: is_renewed
-- Whether the aging of the tasks of "lane" was restarted, as a boolean in JSON.
-- sqlite: a boolean is a number there.
json(CASE WHEN lane.renewed THEN 'true' ELSE 'false' END);
-- postgres:
lane.renewed;

-- name: times
-- The stored times of a waiting task, as needed to move them.
json_row(
    id, group_name, type, status, created_at, queued_at, renewed_at, paused_at, expires_at, {clock_from}, {budget},
    {place});

-- name: every_lane
-- Recursive CTE: every lane that has waiting tasks, with the times of its first one. It skips through the index.
-- sqlite: it cannot skip to the next row value, so the next lane is looked up column by column. In a damaged file the
-- index may disagree with the table and lead back to an earlier lane. Then the group is NULL, and the recursion ends.
lane (group_name, urgency, type, renewed, queued_at, renewed_at, paused_at) AS (
    SELECT
        first.group_name, first.urgency, first.type, first.renewed_at IS NOT NULL, first.queued_at, first.renewed_at,
        first.paused_at
    FROM (
        SELECT group_name, urgency, type, queued_at, renewed_at, paused_at FROM taskmill_task
        WHERE status = 'pending' AND stop IS NULL
        ORDER BY group_name, urgency, type, (renewed_at IS NOT NULL), queued_at, {place} LIMIT 1
    ) AS first
    UNION ALL
    SELECT
        CASE WHEN (following.group_name, following.urgency, following.type, following.renewed_at IS NOT NULL)
            > (lane.group_name, lane.urgency, lane.type, lane.renewed) THEN following.group_name END,
        following.urgency, following.type, following.renewed_at IS NOT NULL, following.queued_at, following.renewed_at,
        following.paused_at
    FROM lane
    JOIN taskmill_task AS following ON following.id = coalesce(
        (
            SELECT id FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency = lane.urgency
                AND type = lane.type AND (renewed_at IS NOT NULL) > lane.renewed
            ORDER BY (renewed_at IS NOT NULL), queued_at, {place} LIMIT 1
        ),
        (
            SELECT id FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency = lane.urgency
                AND type > lane.type
            ORDER BY type, (renewed_at IS NOT NULL), queued_at, {place} LIMIT 1
        ),
        (
            SELECT id FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name = lane.group_name AND urgency > lane.urgency
            ORDER BY urgency, type, (renewed_at IS NOT NULL), queued_at, {place} LIMIT 1
        ),
        (
            SELECT id FROM taskmill_task
            WHERE status = 'pending' AND stop IS NULL AND group_name > lane.group_name
            ORDER BY group_name, urgency, type, (renewed_at IS NOT NULL), queued_at, {place} LIMIT 1
        )
    )
);
-- postgres:
lane (group_name, urgency, type, renewed, queued_at, renewed_at, paused_at) AS (
    (
        SELECT group_name, urgency, type, renewed_at IS NOT NULL, queued_at, renewed_at, paused_at FROM taskmill_task
        WHERE status = 'pending' AND stop IS NULL
        ORDER BY group_name, urgency, type, (renewed_at IS NOT NULL), queued_at, {place} LIMIT 1
    )
    UNION ALL
    SELECT following.* FROM lane CROSS JOIN LATERAL (
        SELECT group_name, urgency, type, renewed_at IS NOT NULL, queued_at, renewed_at, paused_at FROM taskmill_task
        WHERE status = 'pending' AND stop IS NULL
            AND (group_name, urgency, type, (renewed_at IS NOT NULL))
                > (lane.group_name, lane.urgency, lane.type, lane.renewed)
        ORDER BY group_name, urgency, type, (renewed_at IS NOT NULL), queued_at, {place} LIMIT 1
    ) AS following
);

-- name: lanes_found
(SELECT json_list(json_row(group_name, urgency, type, {is_renewed})) FROM lane);

-- name: this_node
-- The node for which this session claims; NULL outside its transactions.
-- postgres:
nullif(current_setting('taskmill.node', true), '')::bigint;

-- name: own_slots
-- Store the number of slots of this node, $1, for the other nodes.
-- postgres:
own AS (
    UPDATE taskmill_node SET slots = $1::bigint WHERE id = {this_node} AND slots <> $1::bigint
);

-- name: others_at_work
-- [[group, type, count, most urgent] of tasks running on other nodes, slots of other nodes].
-- sqlite: both are empty, because only one process dispatches a file. $1, the slots here, is not needed.
json_row(json_row(), 0 * coalesce($1, 0));
-- postgres:
json_row(
    (
        SELECT json_list(json_row(group_name, type, n, most_urgent)) FROM (
            SELECT group_name, type, count(*) AS n, min(urgency) AS most_urgent FROM taskmill_task
            WHERE status = 'running' AND node_id IS DISTINCT FROM {this_node}
            GROUP BY group_name, type
        ) AS running
    ),
    (SELECT coalesce(sum(slots), 0) FROM taskmill_node WHERE id IS DISTINCT FROM {this_node})
);

-- name: may_expire
-- True if task t ends when its deadline passes: it has not started, or waits for a retry. A task that was asked to stop
-- ends for that reason instead. A task that started in time and was interrupted may still run.
t.expires_at IS NOT NULL AND t.status IN ('pending', 'scheduled', 'blocked')
    AND t.stop IS NULL AND t.interrupted = false;

-- name: began_in_time
-- True if the pause of the taskmill_control row "control" began before the deadline of task t, so that it stops the clock
-- of the deadline. Paused time before the paused_at of the task is settled: it has moved the deadline already.
greatest(control.paused_at, coalesce(t.paused_at, control.paused_at)) < t.expires_at;

-- name: is_expired
-- True if the deadline of task t has passed at {now}, whether or not it is in history yet. A pause stops the clock of
-- the deadline. Ended pauses may still owe the task time, at most {owed} ms; the exact amount is not known here.
({may_expire} AND t.expires_at <= {now}::bigint
    AND (t.expires_at + {owed}::bigint <= {now}::bigint OR NOT EXISTS (
        SELECT 1 FROM taskmill_ended_pause AS ended WHERE {owes_it}
    ) AND NOT EXISTS (
        SELECT 1 FROM taskmill_control AS control WHERE {pauses_it} AND control.resume_at <= {now}::bigint
    ))
    AND NOT EXISTS (
        SELECT 1 FROM taskmill_control AS control
        WHERE {pauses_it} AND (control.resume_at IS NULL OR control.resume_at > {now}::bigint) AND {began_in_time}
    ));

-- name: next_due_tasks
-- [[when it is due, its lane, its place] of the next 20 delayed tasks, when the last of them is due if there may be more].
SELECT json_row(
    json_list(json_row(
        lane.due_at, json_row(lane.group_name, lane.urgency, lane.type, {is_renewed}),
        json_row(lane.queued_at, lane.place, lane.id, lane.renewed_at, lane.io))),
    CASE WHEN count(*) = 20 THEN max(lane.due_at) END)
FROM (
    SELECT due_at, group_name, urgency, type, renewed_at IS NOT NULL AS renewed, queued_at, {place} AS place, id,
        renewed_at, {budget} AS io
    FROM taskmill_task WHERE status = 'scheduled' ORDER BY due_at LIMIT 20
) AS lane;

-- name: first_expiry
SELECT min(t.expires_at) FROM taskmill_task AS t WHERE {may_expire} AND t.frozen = false;

-- name: begins_at_an_instant
-- True if the first occurrence of a series is due at a fixed instant and has not started.
EXISTS (
    SELECT 1 FROM taskmill_task AS task
    WHERE task.series_id = taskmill_series.id AND task.series_id IS NOT NULL AND task.due_is_relative = false
        AND task.due_at = taskmill_series.due_at AND taskmill_series.runs = 1
        AND task.status IN ('scheduled', 'blocked', 'paused')
);

-- name: may_skip
-- True if the series skips a due time that comes while its last occurrence is still active.
paused = false AND (max_runs IS NULL OR runs < max_runs);

-- name: first_beat
SELECT min(due_at + every_ms) FROM taskmill_series WHERE {may_skip};

-- name: hooks_due
-- Ids of tasks that were asked to stop and whose on_cancel hook can run now.
-- sqlite:
SELECT json_list(id) FROM taskmill_task WHERE status = 'pending' AND stop IS NOT NULL;
-- postgres: leave out types without a handler on this node. It would claim and return them, and that change would make
-- other nodes do the same.
SELECT json_list(id ORDER BY id) FROM taskmill_task
WHERE status = 'pending' AND stop IS NOT NULL AND ({this_node} IS NULL OR type IN (
    SELECT json_array_elements_text(node.types::json) FROM taskmill_node AS node WHERE node.id = {this_node}));

-- name: hook_left
-- True if task t has started before and its type has an on_cancel hook, or may have one because no program has
-- published the type.
(t.interrupted OR t.retries > 0 OR t.finalizing OR t.status = 'waiting') AND coalesce(
    (SELECT (known.defaults::json ->> 'has_on_cancel')::boolean FROM taskmill_type AS known WHERE known.name = t.type),
    true);

-- name: made_way
-- [id, cause] of preempted tasks.
SELECT json_list(json_row(id, preempted) ORDER BY id) FROM taskmill_task
WHERE status = 'paused' AND preempted > 0;

-- name: is_dead
-- True if a node has left, or was not seen for $1 seconds while the server was up.
-- postgres:
(
    seen_at = '-infinity'
    OR greatest(seen_at, pg_postmaster_start_time()) < clock_timestamp() - make_interval(secs => $1::float8)
);

-- name: is_beside_history
-- True if the failure "e" is retried, or if it ended a task that was revived since: a task that failed for good is active
-- only while its end waits for its children, and has no later attempt. A crash is neither: the task returns to the
-- queue, and nothing shows later which crash was the last one. Scalar subqueries, because PostgreSQL may answer EXISTS
-- by reading the whole table.
CASE WHEN e.retry_ms IS NOT NULL THEN true WHEN e.kind = 'crashed' THEN false ELSE coalesce(
    (SELECT t.attempt > e.attempt OR t.outcome IS NULL FROM taskmill_task AS t WHERE t.id = e.task_id AND t.stop IS NULL),
    (SELECT h.attempt > e.attempt FROM taskmill_history AS h WHERE h.id = e.task_id), false) END;

-- name: description
-- The description of active task t for events and callers.
json_row(
    t.id, t.type, t.key, t.label, t.group_name, t.priority, t.urgency, t.tags, t.created_at,
    coalesce(t.renewed_at, t.queued_at));

-- name: may_claim
-- True if this node may claim: a node that was declared dead must not, because no other node would rescue its tasks
-- again.
-- postgres:
(coalesce(current_setting('taskmill.node', true), '') = ''
    OR EXISTS (SELECT 1 FROM taskmill_node WHERE id = {this_node}));

-- name: claimed
-- CTEs: start the tasks of the CTE "free" at $2, on the node of this session and with new attempt tokens, and subtract
-- them from the load.
-- postgres:
claimed AS (
    UPDATE taskmill_task AS t SET
        status = 'running', attempt = t.attempt + 1,
        started_at = CASE WHEN NOT free.prefetched THEN $2::bigint END,
        expires_at = coalesce(t.expires_at, $2::bigint + t.ttl_ms),
        node_id = {this_node}, preempted = 0
    FROM free WHERE t.id = free.id
    RETURNING t.*, free.prefetched
), unloaded AS (
    INSERT INTO taskmill_load (group_name, type, status, tasks)
    SELECT group_name, type, 'pending', -count(*) FROM claimed GROUP BY group_name, type
);

-- name: attempt
-- What is needed to run a claimed task.
-- postgres:
json_row(
    id, attempt, type, key, label, group_name, priority, payload, tags, overrides, retries, crashes,
    created_at, queued_at, due_at, expires_at, $2::bigint, parent_id, saved, replaced, stop,
    last_error, urgency,
    CASE WHEN children > 0 OR finalizing
        THEN json_row(children, finalizing::int, outcome::json ->> 1) END,
    (awaited OR parent_id IS NOT NULL OR series_id IS NOT NULL OR children > 0 OR cron IS NOT NULL)::int,
    renewed_at, {place}, io, cron, prefetched::int,
    CASE WHEN stop IS NULL AND NOT interrupted AND (ttl_ms IS NULL OR attempt > 1) THEN expires_at END);

-- name: holds_token
-- True if the task "t" runs the attempt that the row "given" names. The CASE makes the planner find tasks by id, for each
-- given row. With a condition on the status alone it would compare each running task with every given row.
t.id = given.id AND CASE WHEN t.attempt = given.attempt THEN t.status = 'running' END;

-- name: is_prefetched
-- True if a task is claimed and has not begun, because no slot is free yet.
(status = 'running' AND started_at IS NULL);

-- name: queued_in_groups
-- Group, type and a number for each part of the tasks in lanes. A task that was asked to stop is pending until its hook
-- runs, but in no lane.
SELECT group_name, type, sum(tasks)::bigint AS n FROM taskmill_load WHERE status = 'pending'
GROUP BY group_name, type
UNION ALL
SELECT group_name, type, -1 FROM taskmill_task WHERE status = 'pending' AND stop IS NOT NULL;

-- name: prefetched_in_groups
-- Group, type and 1 for each prefetched task that has not begun; there are few.
SELECT group_name, type, 1 AS n FROM taskmill_task WHERE {is_prefetched} AND stop IS NULL;

-- name: status_begun
-- The status of a task. A prefetched task that has not begun is still pending.
CASE WHEN {is_prefetched} THEN 'pending' ELSE status END;

-- name: attempts_begun
-- How many attempts of a task have begun.
attempt - CASE WHEN {is_prefetched} THEN 1 ELSE 0 END;

-- name: may_prefetch
-- True if a task may be claimed at $2 before a slot is free. A task with a key may be replaced, and one that was
-- attempted, has a deadline soon, or belongs to a series or a cron task has more to account for than a new one.
(attempt = 0 AND key IS NULL AND series_id IS NULL AND cron IS NULL AND ttl_ms IS NULL
    AND (expires_at IS NULL OR expires_at > $2::bigint + 1000));

-- name: awaited
-- Recursive CTE: the given tasks and every task that they wait for, directly or indirectly. A task waits for its
-- dependencies and its children, and an added run waits for the run before it.
-- sqlite:
awaited (id) AS (
    {given_ids}
    UNION
    SELECT edge.on_id FROM awaited JOIN taskmill_dependency AS edge ON edge.task_id = awaited.id AND edge.open = true
    UNION
    SELECT child.id FROM awaited JOIN taskmill_task AS child ON child.parent_id = awaited.id
    UNION
    SELECT before.id FROM awaited JOIN taskmill_task AS added ON added.id = awaited.id
    JOIN taskmill_task AS before ON before.id = added.gate_id AND before.gave_key = true AND before.stop IS NULL
);
-- postgres: the recursive part may name the CTE only once.
awaited (id) AS (
    {given_ids}
    UNION
    SELECT next.id FROM awaited CROSS JOIN LATERAL (
        SELECT edge.on_id FROM taskmill_dependency AS edge WHERE edge.task_id = awaited.id AND edge.open
        UNION ALL
        SELECT child.id FROM taskmill_task AS child WHERE child.parent_id = awaited.id
        UNION ALL
        SELECT before.id FROM taskmill_task AS added
        JOIN taskmill_task AS before ON before.id = added.gate_id AND before.gave_key AND before.stop IS NULL
        WHERE added.id = awaited.id
    ) AS next (id)
);

-- name: own_pause
-- The span in which task t was paused by itself, until $2. Time that is also covered by a pause of its scheduler,
-- domain or group is left out: it is given back when that pause ends.
coalesce(t.paused_at, $2::bigint) AS since,
        least($2::bigint, coalesce({paused_with_others_since}, $2::bigint)) AS until;

-- name: pause_given_back
-- Assignments that give the pause "own" back to "task": it has neither aged nor come closer to its deadline in that
-- time.
queued_at = task.queued_at + greatest(0, own.until - own.since),
    renewed_at = task.renewed_at + greatest(0, own.until - own.since),
    expires_at = task.expires_at + greatest(0, own.until - own.since),
    paused_at = greatest(own.until, own.since);

-- name: stop_requests
-- [id, reason] of tasks running on this node that were asked to stop, possibly by another process.
-- sqlite:
SELECT json_list(json_row(id, stop)) FROM taskmill_task WHERE status = 'running' AND stop IS NOT NULL;
-- postgres: another node may also have marked the task for preemption.
SELECT json_list(json_row(id, coalesce(stop, 'preempt')) ORDER BY id) FROM taskmill_task
WHERE status = 'running' AND (stop IS NOT NULL OR preempted > 0) AND node_id IS NOT DISTINCT FROM {this_node};

-- name: running_urgencies
-- [id, priority, urgency] of the tasks running on this node.
-- sqlite:
SELECT json_list(json_row(id, priority, urgency)) FROM taskmill_task WHERE status = 'running';
-- postgres:
SELECT json_list(json_row(id, priority, urgency)) FROM taskmill_task
WHERE status = 'running' AND node_id IS NOT DISTINCT FROM {this_node};

-- name: last_id
-- The last id that a task was given.
-- sqlite:
(SELECT max(seq) FROM sqlite_sequence WHERE name = 'taskmill_task');
-- postgres: a sequence shows 1 before its first use, too.
(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM taskmill_task_id);

-- name: id_before
-- The id after which there is room for $2 new tasks; if $2 is 0, the last id that a task was given.
-- sqlite: the last id used, because the transaction holds the write lock.
(SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'taskmill_task' AND $2 IS NOT NULL);
-- postgres: the ids are reserved here.
CASE WHEN $2::bigint > 0 THEN taskmill_take_ids($2::bigint) - 1 ELSE {last_id} END;

-- name: may_end_tasks
-- True if the role of this session may end tasks. Without that right it leaves expired tasks to other nodes.
-- sqlite:
true;
-- postgres:
has_table_privilege('taskmill_task', 'DELETE');

-- name: stored
-- Prefix for the table whose name a CTE has taken.
-- sqlite: there the name would mean the CTE itself.
main.;
-- postgres:

-- name: on_this_node
-- Condition, to be appended to another one, that a task is claimed by the node of this session.
-- sqlite: a file has no nodes.
-- postgres:
AND node_id IS NOT DISTINCT FROM {this_node};

-- name: no_node
-- Assignment, to be appended to another one, that takes a task from its node.
-- sqlite: a file has no nodes.
-- postgres:
, node_id = NULL;

-- name: before_claim
-- Assignments that undo the claim of task t, which has not started: it does not count as an attempt, and it does not start
-- the time-to-live that counts from the first one.
status = 'pending', attempt = t.attempt - 1, started_at = CASE WHEN t.attempt > 1 THEN t.started_at END,
    expires_at = CASE WHEN t.attempt > 1 OR t.ttl_ms IS NULL THEN t.expires_at END;

-- name: loaded
-- The end of the CTE "stored", which inserts tasks, and a CTE that adds them to the load.
-- postgres:
RETURNING group_name, type, status
), loaded AS (
    INSERT INTO taskmill_load (group_name, type, status, tasks)
    SELECT group_name, type, status, count(*) FROM stored GROUP BY group_name, type, status
);

-- name: errors
-- The errors of the task id, oldest first: [attempt, at, kind, error, traceback, node, duration]. It is read only for a
-- task that may have some; one that succeeded at once has none.
(SELECT json_list(json_row(attempt, at, kind, error, traceback, node, duration_ms) ORDER BY attempt) FROM (
    SELECT attempt, at, kind, error, traceback, node, duration_ms FROM taskmill_error WHERE task_id = id ORDER BY attempt
) AS kept);
