"""Whom no configuration makes a victim (RULES G-11): what the cluster lives on, what somebody asked not to disrupt, and what a
PodDisruptionBudget keeps. Plugins protect others (`gang`, `conformance`)."""

from restow.contracts.ids import PodUid
from restow.domain.protection import Allowance, Budgets, asked_to_stay, is_critical
from restow.domain.session.session import Session


class Guard:
    """For one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._budgets: Budgets | None = None
        self._counted: dict[PodUid, tuple[str, ...]] = {}
        """Victims of this session that are counted in `_chosen`, and their budgets."""
        self._chosen: dict[str, int] = {}

    def allowances(self, uid: PodUid) -> list[Allowance]:
        """Registered at `protects`."""
        state = self._session.state
        pod = state.pods[uid].fact
        if is_critical(state, pod) or asked_to_stay(pod):
            return [(("pod", uid), 0)]
        if not state.budgets:
            return []
        if self._budgets is None:
            self._budgets = Budgets(state)
        self._count(self._budgets)
        return [(of, left - self._chosen.get(of[-1], 0)) for of, left in self._budgets.allowances(uid)]

    def _count(self, budgets: Budgets) -> None:
        """A claim that was given up has spared its victims."""
        victims = self._session.victims
        if victims.keys() == self._counted.keys():
            return
        for uid in [uid for uid in self._counted if uid not in victims]:
            for path in self._counted.pop(uid):
                self._chosen[path] -= 1
        for uid in [uid for uid in victims if uid not in self._counted]:
            self._counted[uid] = budgets.bind(uid)
            for path in self._counted[uid]:
                self._chosen[path] = self._chosen.get(path, 0) + 1
