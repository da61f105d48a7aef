-- How many active tasks there are in each group, of each type and status, so that answers never count the queue. Running
-- tasks are left out: they are few, and have an index of their own.
--
-- A number is the sum of its rows. Every change appends rows, so that nodes never wait for each other; now and then one
-- node merges them (fold_load). Inserts, claims and endings append rows once per batch. A trigger does it for
-- everything else.
CREATE TABLE taskmill_load (
    group_name text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    tasks bigint NOT NULL -- added, or subtracted if negative
);
-- Without a primary key, rows could not be deleted in a database that publishes all its tables.
ALTER TABLE taskmill_load REPLICA IDENTITY FULL;
ALTER TABLE taskmill_load SET (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0);

CREATE FUNCTION taskmill_count_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'running' THEN
        INSERT INTO taskmill_load (group_name, type, status, tasks) VALUES (NEW.group_name, NEW.type, NEW.status, 1);
    ELSIF (OLD.status, OLD.group_name, OLD.type) IS DISTINCT FROM (NEW.status, NEW.group_name, NEW.type) THEN
        INSERT INTO taskmill_load (group_name, type, status, tasks)
        VALUES (OLD.group_name, OLD.type, OLD.status, -1), (NEW.group_name, NEW.type, NEW.status, 1);
    END IF;
    RETURN NULL;
END $$;

-- A claim, from 'pending' to 'running', is counted by its statement; the condition keeps it from calling the function. The
-- server parses the condition once for each claim, so it is short. A trigger on whole statements would copy all rows.
CREATE TRIGGER taskmill_load_change AFTER UPDATE OF status, group_name, type ON taskmill_task FOR EACH ROW
WHEN (NEW.status <> 'running')
EXECUTE FUNCTION taskmill_count_change();

-- After the trigger, whose lock keeps others from writing: no change is missed, and none is counted twice.
INSERT INTO taskmill_load (group_name, type, status, tasks)
SELECT group_name, type, status, count(*) FROM taskmill_task WHERE status <> 'running' GROUP BY group_name, type, status;
