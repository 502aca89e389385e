"""What exists, what to run, and how to run it: the rooms before `runs/`."""
