-- Pauses that have ended, and whose time was not given back to all of their tasks yet. Tasks are visited from the newest to
-- the oldest; those with ids below `reached` are still to be visited.
CREATE TABLE taskmill_ended_pause (
    kind TEXT NOT NULL CHECK (kind IN ('scheduler', 'domain', 'group')),
    name TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    reached INTEGER NOT NULL,
    PRIMARY KEY (kind, name, since)
) STRICT, WITHOUT ROWID;
