-- Where a job's newest checkpoint is among its events, and how many undo steps it owes.

ALTER TABLE holdfast.jobs ADD COLUMN checkpoint_rev integer, ADD COLUMN undo_owed integer NOT NULL DEFAULT 0;

CREATE INDEX jobs_owing ON holdfast.jobs (id) WHERE undo_owed > 0 AND finished_at IS NOT NULL;
