"""A log that this release is too old for (`restow.contracts.reader`)."""

from restow.contracts.reader import READER
from restow.domain.state import ClusterState

TOO_OLD = "this release is too old for the log"
"""With this begins every sentence that says so."""


def too_old(state: ClusterState) -> str:
    """Why nothing may be decided here, and what to run instead; empty where all of the log is understood."""
    needs = state.reader
    if needs.oldest <= READER:
        return ""
    by = f", written by {needs.release}" if needs.release else ""
    return f"{TOO_OLD}: record {needs.seq}{by}, needs reader {needs.oldest}, and this is reader {READER}. Run that release, or a later one"
