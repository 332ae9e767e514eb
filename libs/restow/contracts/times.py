"""Times as text: the envelope's, the API's, what people read. Milliseconds since the epoch everywhere else."""

from datetime import UTC, datetime

from restow.contracts.ids import EARLIEST, LATEST, Millis


def bounded(time: int) -> Millis:
    """The nearest time of the years 1 to 9999: a sum of a time and a duration may lead out of them."""
    return Millis(min(max(time, EARLIEST), LATEST))


def doubled(first: int, times: int, most: int) -> int:
    """How long the pause after so many `times` in a row is: `first` after one, twice as long after each more, at most `most`."""
    return min(first << min(max(times - 1, 0), 16), most)


def rfc3339(time: int) -> str:
    """`2026-01-01T00:00:00.000Z`; empty for 0, which means "not". What is beyond the years 1 to 9999 is as far as they go."""
    if not time:
        return ""
    time = bounded(time)
    moment = datetime.fromtimestamp(time // 1000, UTC)
    return f"{moment.isoformat()[:19]}.{time % 1000:03d}Z"


def seconds(time: int) -> str:
    """As Kubernetes writes its own times: `2026-01-01T00:00:00Z`; empty for 0."""
    return f"{rfc3339(time)[:19]}Z" if time else ""


def day_and_time(time: int) -> str:
    """`2026-01-01 00:00:00`, in UTC, for people; empty for 0."""
    return rfc3339(time)[:19].replace("T", " ")


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
    """A moment in milliseconds; one without a zone is UTC. A zone, or rounding, may lead out of the years 1 to 9999: those end there."""
    return bounded(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
