"""Why a stack does not stand."""


class StackError(Exception):
    """The stack could not start or run. Says which part, and where its log is."""


class StackRefused(StackError):
    """What it was given cannot be used: a configuration, an object, a port, a folder."""
