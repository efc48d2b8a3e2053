"""The command line: a client of the API and of the instance, which holds no rules."""
