"""Whether a state is of records that the log has lost."""

from contextlib import aclosing

from restow.domain.state import ClusterState
from restow.eventlog.port import EventLog, Truncated


async def of_another_history(log: EventLog, state: ClusterState) -> str:
    """Why the log is not the one that the state was folded from; empty where nothing speaks against it. Raises what the log raises."""
    tail = await log.tail()
    if state.seq > tail:
        return f"the log ends at {tail}"
    if state.seq < await log.first():
        return ""
    try:
        async with aclosing(log.read(state.seq)) as batches:  # type: ignore[type-var]
            last = (await anext(batches))[0]
    except Truncated:
        return ""  # The log has let it go since we asked where it begins.
    if last.seq > state.seq:
        # The disk has lost that one: the next says what its writer had read; or one that is lost as well, which is no other history.
        read = int(last.envelope.digest.partition(":")[0] or 0)
        why = state.history.differs(last.seq, last.envelope) if read <= state.seq else ""
        return f"record {state.seq} is missing, and what comes behind it follows from another history: {why}" if why else ""
    return "" if state.history.ends_with(last.seq, last.family, last.envelope, last.body) else f"record {last.seq} is another one"
