"""What each command does, one file a command; `tqgen.cli` reads the arguments."""
