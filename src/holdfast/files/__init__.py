"""Files that a user names: the settings of a folder, and key files."""
