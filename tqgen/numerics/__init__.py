"""Numbers: formats, packing, rotations, and how they are written into source."""
