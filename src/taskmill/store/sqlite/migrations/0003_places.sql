-- A replacement has the place of the task it replaces: among tasks that began to wait in one millisecond the id of the place
-- decides, not that of the task.

ALTER TABLE taskmill_task ADD COLUMN place_id INTEGER; -- the task whose place it has; NULL: its own

DROP INDEX taskmill_task_queue;
CREATE INDEX taskmill_task_queue
    ON taskmill_task (group_name, urgency, type, renewed_at IS NOT NULL, queued_at, coalesce(place_id, id))
    WHERE status = 'pending' AND stop IS NULL;
DROP INDEX taskmill_task_child;
CREATE INDEX taskmill_task_child ON taskmill_task (parent_id, held, urgency, coalesce(place_id, id))
    WHERE parent_id IS NOT NULL;
