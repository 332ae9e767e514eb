"""The Defragmentation plugin (seed 000, 2.1 to 2.3; RULES 000-4): empty the least used nodes into well used ones, or, by the
optimizing planner, as much as can be gained for what it costs."""

from restow.domain.defragmentation.args import ArgsError, check
from restow.domain.defragmentation.explain import Candidate, explain
from restow.domain.defragmentation.outcome import PLUGIN
from restow.domain.defragmentation.plan import make_room, plan

__all__ = ["PLUGIN", "ArgsError", "Candidate", "check", "explain", "make_room", "plan"]
