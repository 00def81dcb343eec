"""The command line. Commands are imported when they are asked for, and in them what is heavy, so
that `byheart --help` answers at once."""
