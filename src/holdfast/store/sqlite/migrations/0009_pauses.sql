-- Who paused a queue, and why.
ALTER TABLE holdfast_queues ADD COLUMN paused_by TEXT;
ALTER TABLE holdfast_queues ADD COLUMN pause_reason TEXT;
