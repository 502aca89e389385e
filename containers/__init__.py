"""Where a stack's own software comes in one piece: images pinned by digest, and how ours are built."""
