-- Pauses that have ended, and whose time was not given back to all of their tasks yet. Tasks are visited from the newest to
-- the oldest; those with ids below `reached` are still to be visited.
CREATE TABLE taskmill_ended_pause (
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('scheduler', 'domain', 'group')),
    name text COLLATE "C" NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    reached bigint NOT NULL,
    PRIMARY KEY (kind, name, since)
);
ALTER TABLE taskmill_ended_pause SET (
    fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
