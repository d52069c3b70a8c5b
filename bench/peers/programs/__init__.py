"""What runs in the contenders' own processes. Their packages are installed in .bench/venv only: nothing here imports Holdfast's parts but its own program."""
