-- A run that requeue has added is a task of its own, which waits behind the run under way and has its key from now on.

ALTER TABLE taskmill_task ADD COLUMN gave_key INTEGER NOT NULL DEFAULT 0; -- its key went to the run that requeue has added

DROP INDEX taskmill_task_key;
DROP INDEX taskmill_task_stopping;

-- Requests that were stored with the run under way: [payload, expires_at].
INSERT INTO taskmill_task (
    type, key, label, group_name, priority, urgency, status, payload, tags, overrides, created_at, queued_at, expires_at,
    gate_id, parent_id, series_id, io, held
)
SELECT
    type, key, label, group_name, priority, priority, 'blocked', rerun ->> 0, tags, overrides,
    coalesce(started_at, created_at), coalesce(started_at, created_at), rerun ->> 1, id, parent_id, series_id, io,
    coalesce((SELECT parent.max_children IS NOT NULL FROM taskmill_task AS parent WHERE parent.id = t.parent_id), 0)
FROM taskmill_task AS t
WHERE rerun IS NOT NULL AND stop IS NULL AND key IS NOT NULL;
UPDATE taskmill_task SET gave_key = 1 WHERE rerun IS NOT NULL AND stop IS NULL AND key IS NOT NULL;
INSERT INTO taskmill_task_tag (name, value, task_id)
SELECT tag.key, tag.value, added.id
FROM taskmill_task AS t
JOIN taskmill_task AS added ON added.gate_id = t.id
CROSS JOIN json_each(added.tags) AS tag
WHERE t.gave_key = 1 AND added.tags IS NOT NULL;
UPDATE taskmill_task SET children = children + added.n
FROM (
    SELECT parent_id, count(*) AS n FROM taskmill_task
    WHERE gave_key = 1 AND parent_id IS NOT NULL GROUP BY parent_id
) AS added
WHERE taskmill_task.id = added.parent_id;

ALTER TABLE taskmill_task DROP COLUMN rerun;

-- A key is held by one task; one that was asked to stop, or has a run added, has given it up, but its successor waits for it.
CREATE UNIQUE INDEX taskmill_task_key ON taskmill_task (type, key)
    WHERE key IS NOT NULL AND stop IS NULL AND gave_key = 0;
CREATE INDEX taskmill_task_stopping ON taskmill_task (type, key)
    WHERE key IS NOT NULL AND (stop IS NOT NULL OR gave_key = 1);
