"""A session in a state that is a little different."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from restow.domain.memo import Memo
from restow.domain.session.registry import open_session
from restow.domain.session.session import Session
from restow.domain.state import ClusterState


@contextmanager
def supposed(state: ClusterState, *changes: tuple[dict, Any, Any]) -> Iterator[Session]:
    """A session in a state where (map, key, value) are so. What is kept about the real state is put aside meanwhile."""
    kept, state.memo = state.memo, Memo()
    try:
        with state.draft():
            for mapping, key, value in changes:
                state.put(mapping, key, value)
            session = open_session(state, state.time, 1)
            try:
                yield session
            finally:
                session.close()
    finally:
        state.memo = kept
