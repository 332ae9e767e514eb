"""`volcano-scheduler.conf` → SessionConfig: the file itself (as a mounted ConfigMap gives it), or the ConfigMap's manifest."""

from collections.abc import Mapping
from typing import Any

from restow.domain.config import SessionConfig
from restow.domain.session_config import ConfError, read_conf
from restow.runtime.config_source import BadConfig, parse

KEY = "volcano-scheduler.conf"
"""Of the ConfigMap, as Volcano's installer names it."""


def read(said: Any) -> SessionConfig:
    """Raises BadConfig with path, value and what is allowed."""
    path, said = _inside(said)
    try:
        return read_conf(said)
    except ConfError as error:
        raise BadConfig(f"{path}{error}") from None


def _inside(said: Any) -> tuple[str, Any]:
    """What a ConfigMap holds, and where that is."""
    if not isinstance(said, Mapping) or said.get("kind") != "ConfigMap":
        return "", said
    data = said.get("data")
    text = data.get(KEY) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        found = ", ".join(map(str, data)) if isinstance(data, Mapping) else data
        raise BadConfig(f"$.data: {found}; allowed: a ConfigMap with the key {KEY}")
    path = f"$.data[{KEY!r}]: "
    try:
        return path, parse(text)
    except BadConfig as error:
        raise BadConfig(f"{path}{error}") from None
