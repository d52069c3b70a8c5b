-- What each agent, in each of its sessions, is at: the task it works on, the last one it had, and how far it has read.
CREATE TABLE holdfast_agents (
    name       TEXT NOT NULL,
    session    TEXT NOT NULL,
    focus      INTEGER,
    last       INTEGER,
    cursor     INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (name, session)
) STRICT, WITHOUT ROWID;
