"""The registry: one line a plugin, in the order of their names."""

from typing import Any

_MODULES: tuple[Any, ...] = ()

PLUGINS: dict[str, Any] = {module.NAME: module for module in _MODULES}
"""By upstream's name; each is a `framework.Plugin`."""
