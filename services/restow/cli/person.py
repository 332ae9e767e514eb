"""Who uses this terminal: what the log says of a pause or a repair."""

import getpass


def person() -> str:
    """The user's name; in a container whose user nobody has named, `unknown`."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
