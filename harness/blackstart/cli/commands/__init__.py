"""One module a command; each has one `COMMAND` and imports its work only when it runs."""
