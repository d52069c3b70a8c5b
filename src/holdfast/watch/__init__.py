"""What is counted and what is drawn of a ledger: tallies, timelines, metrics of the process and their page for Prometheus."""
