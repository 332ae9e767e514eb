"""Action `backfill`: pods that ask for nothing but a node, wherever rules let them. What gangs need of such pods is placed
with the gang."""

from typing import Any

from restow.domain.session.actions.allocate import place_one
from restow.domain.session.session import Session


def run(session: Session, args: Any) -> None:
    for job, uid in session.best_effort:
        place_one(session, job, session.state.pods[uid].fact)
    session.best_effort.clear()
