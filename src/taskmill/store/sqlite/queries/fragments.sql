-- What several statements must say alike: `{word}` in a statement stands for it.

-- name: pauses_it
-- Whether a row of taskmill_control, called control, pauses the task whose columns are at hand: with all others, or with
-- those of its group or domain. A pause whose time is over pauses until somebody ends it.
control.paused_at IS NOT NULL AND (
    control.kind = 'scheduler' OR control.kind = 'group' AND control.name = group_name
    OR control.kind = 'domain' AND control.name = substr(type, 1, instr(type, '::') - 1));

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
