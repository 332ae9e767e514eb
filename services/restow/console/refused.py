"""Why a request is not served."""


class Refused(Exception):
    """A request that cannot be served, and why."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status
