"""Plugin `capacity`."""

from typing import Any


def open(session: Any, args: Any) -> None:
    """Nothing is registered yet."""
