"""Reading raw results, judging them, comparing them, and making tables and figures of them. Never runs anything."""
