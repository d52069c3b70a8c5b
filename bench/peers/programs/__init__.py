"""What runs in the contenders' own processes, with the packages that are installed for them alone."""
