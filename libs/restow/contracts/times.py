"""Times as text: the envelope's, the API's, what people read. Milliseconds since the epoch everywhere else."""

from datetime import UTC, datetime

from restow.contracts.ids import Millis


def rfc3339(time: int) -> str:
    """`2026-01-01T00:00:00.000Z`; empty for 0, which means "not"."""
    if not time:
        return ""
    moment = datetime.fromtimestamp(time // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time % 1000:03d}Z"


def seconds(time: int) -> str:
    """As Kubernetes writes its own times: `2026-01-01T00:00:00Z`; empty for 0."""
    return f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" if time else ""


def millis(text: str) -> Millis:
    """RFC 3339 to milliseconds. A time without a zone is UTC. Raises ValueError."""
    return of(datetime.fromisoformat(text))


def stamped(text: str) -> Millis:
    """The time of an envelope, which names its zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; RFC 3339 asks for one")
    return of(moment)


def of(moment: datetime) -> Millis:
    """A moment in milliseconds; one without a zone is UTC."""
    return Millis(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
