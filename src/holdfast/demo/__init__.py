"""`holdfast demo`: real workers run real jobs, one worker is killed, and the history is verified."""
