-- What each agent, in each of its sessions, is at: the task it works on, the last one it had, and how far it has read.
CREATE TABLE holdfast.agents (
    name       text COLLATE "C" NOT NULL,
    session    text COLLATE "C" NOT NULL,
    focus      bigint,
    last       bigint,
    cursor     bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (name, session)
);
