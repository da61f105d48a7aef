-- How many active tasks there are in each group, of each type and status, so that answers never count the queue. Running
-- tasks are left out: they are few, and have an index of their own.
--
-- Inserts, claims and endings are counted by the code, once per batch; a trigger would cost each task 1.5 microseconds. A
-- trigger counts everything else.
CREATE TABLE taskmill_load (
    group_name TEXT NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (group_name, type, status)
) STRICT, WITHOUT ROWID;

INSERT INTO taskmill_load (group_name, type, status, tasks)
SELECT group_name, type, status, count(*) FROM taskmill_task WHERE status <> 'running' GROUP BY group_name, type, status;

-- A claim, from 'pending' to 'running', is counted by the code.
CREATE TRIGGER taskmill_load_change AFTER UPDATE OF status, group_name, type ON taskmill_task
WHEN NEW.status <> 'running' AND (OLD.status, OLD.group_name, OLD.type) IS NOT (NEW.status, NEW.group_name, NEW.type)
BEGIN
    UPDATE taskmill_load SET tasks = tasks - 1
    WHERE group_name = OLD.group_name AND type = OLD.type AND status = OLD.status;
    INSERT INTO taskmill_load (group_name, type, status, tasks) VALUES (NEW.group_name, NEW.type, NEW.status, 1)
    ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
-- Groups come and go.
CREATE TRIGGER taskmill_load_empty AFTER UPDATE OF tasks ON taskmill_load WHEN NEW.tasks <= 0
BEGIN
    DELETE FROM taskmill_load WHERE group_name = NEW.group_name AND type = NEW.type AND status = NEW.status;
END;
