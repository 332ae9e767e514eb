"""The scheduler session: every change of who holds or uses capacity."""

from restow.domain.session.decider import SessionDecider

decider = SessionDecider()
