"""The command line: one thin file a command. Heavy imports happen inside the commands, so that
`byheart --help` answers at once."""
