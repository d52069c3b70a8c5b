-- Who paused a queue, and why.
ALTER TABLE holdfast.queues ADD COLUMN paused_by text COLLATE "C", ADD COLUMN pause_reason text COLLATE "C";
