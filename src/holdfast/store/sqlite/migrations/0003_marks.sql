-- Where a job's newest checkpoint is among its events, and how many undo steps it owes.

ALTER TABLE holdfast_jobs ADD COLUMN checkpoint_rev INTEGER;
ALTER TABLE holdfast_jobs ADD COLUMN undo_owed INTEGER NOT NULL DEFAULT 0;

CREATE INDEX holdfast_jobs_owing ON holdfast_jobs (id) WHERE undo_owed > 0 AND finished_at IS NOT NULL;
