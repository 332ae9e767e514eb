"""Verdicts: why a pod is where it is, or why it waits and what would let it fit. Decided again from the state, never stored:
nobody who does not ask pays for them (DESIGN 4)."""

from restow.domain.session.verdict.choice import choice as choice
from restow.domain.session.verdict.explain import explain as explain
from restow.domain.session.verdict.explain import explain_group as explain_group
from restow.domain.session.verdict.slots import explain_slots as explain_slots
from restow.domain.session.verdict.taking import takes as takes
from restow.domain.session.verdict.values import Block as Block
from restow.domain.session.verdict.values import Choice as Choice
from restow.domain.session.verdict.values import GangFit as GangFit
from restow.domain.session.verdict.values import Nominee as Nominee
from restow.domain.session.verdict.values import Relief as Relief
from restow.domain.session.verdict.values import SlotsFit as SlotsFit
from restow.domain.session.verdict.values import Verdict as Verdict
