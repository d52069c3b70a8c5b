"""The timeline of one job."""
