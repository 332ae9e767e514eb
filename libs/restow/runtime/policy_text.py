"""A policy as somebody would write it, from what the log has of it."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from restow.domain.config import MigrationConfig
from restow.domain.descheduling.model import DEFRAGMENTATION
from restow.runtime.config_source import BadConfig, parse
from restow.runtime.policy_file import API_VERSION, KIND, NOT_HERE, read


def policy_text(config: MigrationConfig) -> str:
    """A DeschedulerPolicy in YAML; empty where what it would say is not the same policy."""
    text = yaml.safe_dump(_document(config), sort_keys=False, width=100)
    try:
        return text if read(parse(text)) == config else ""
    except BadConfig:
        return ""


def _document(config: MigrationConfig) -> dict[str, Any]:
    own = {key: value for key, value in _said(config).items() if key not in NOT_HERE}
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND} | msgspec.json.decode(msgspec.json.encode(config.policy))
    if config.defragmentation is not None:
        profiles = document.setdefault("profiles", [])
        home = next((one for one in profiles if one["name"] == config.profile), None)
        if home is None:
            profiles.append(home := {"name": config.profile, "pluginConfig": [], "plugins": {}})
        home.setdefault("pluginConfig", []).append({"name": DEFRAGMENTATION, "args": _said(config.defragmentation)})
        enabled = home.setdefault("plugins", {}).setdefault("balance", {}).setdefault("enabled", [])
        enabled.insert(config.defragment_at, DEFRAGMENTATION)
    return document | ({"restow": own} if own else {})


def _said(config: Any) -> dict[str, Any]:
    """What is not as it is by default."""
    known, usual = msgspec.to_builtins(config), msgspec.to_builtins(type(config)())
    return {key: value for key, value in known.items() if value != usual.get(key)}
