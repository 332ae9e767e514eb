"""What the configuration names, opened: plugins and actions with their typed arguments. Read once for a configuration."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from restow.contracts.ids import Millis, PodUid
from restow.domain.config import PluginConfig, SessionConfig
from restow.domain.session import actions
from restow.domain.session.actions import reserve_starving
from restow.domain.session.guard import Guard
from restow.domain.session.plugins import PLUGINS
from restow.domain.session.session import Session
from restow.domain.session.starving import Reserved
from restow.domain.state import ClusterState

Opened = tuple[int, PluginConfig, ModuleType, Any]


class _Configured(NamedTuple):
    config: SessionConfig
    plugins: list[Opened]
    actions: list[tuple[ModuleType, Any]]


def _read(state: ClusterState) -> _Configured:
    config = state.session_config
    kept = state.memo.find(_Configured)
    if kept is None or kept.config is not config:
        opened_plugins = [
            (tier, plugin, PLUGINS[plugin.name], PLUGINS[plugin.name].Args.read(plugin.arguments))
            for tier, several in enumerate(config.tiers)
            for plugin in several
        ]
        kept = state.memo.keep(_Configured(config, opened_plugins, list(actions.of(config))))
    return kept


def open_session(state: ClusterState, now: Millis, limit: int, turn: int = 0) -> Session:
    """With every plugin of the configuration registered, tier by tier. The caller closes it."""
    session = Session(state, now, limit, turn)
    if state.reserved_on or _serves_starving(state):
        # No plugin's, so that it holds whichever there are.
        session.extensions.filter(Reserved(state))
    # Nor are these: no configuration lets the Eviction API evict whom a budget keeps.
    session.extensions.opening(0, PluginConfig(""))
    session.extensions.veto("protects", Guard(session).allowances)
    for tier, plugin, module, args in opened(state):
        session.extensions.opening(tier, plugin)
        module.open(session, args)
    session.ready()
    return session


def run_actions(session: Session) -> None:
    """One after the other, in the order of the configuration."""
    for module, args in acting(session.state):
        module.run(session, args)
    if session.state.reserved_on and not _serves_starving(session.state):
        reserve_starving.end_all(session)


def _serves_starving(state: ClusterState) -> bool:
    return any(module is reserve_starving for module, _ in acting(state))


def opened(state: ClusterState) -> list[Opened]:
    """(tier, configuration, module, arguments) of each plugin, in order."""
    return _read(state).plugins


def acting(state: ClusterState) -> list[tuple[ModuleType, Any]]:
    """(module, arguments) of each action, in order."""
    return _read(state).actions


def keeps(state: ClusterState, uid: PodUid) -> bool:
    """Whether a plugin keeps a pod whose eviction was decided, for now: asked before every attempt."""
    return any(module.keeps(state, args, uid) for _, _, module, args in opened(state) if hasattr(module, "keeps"))


def due_times(state: ClusterState, after: Millis) -> Iterator[Millis | None]:
    """When plugins and actions want a session although nothing happens, the first time after `after` of each."""
    for module, args in (*(plugin[2:] for plugin in opened(state)), *acting(state)):
        if (deadline := getattr(module, "deadline", None)) is not None:
            yield deadline(state, args, after)
