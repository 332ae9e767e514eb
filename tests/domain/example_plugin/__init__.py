"""Nodes that may vanish are for pods that do not mind: the example of docs/architecture.md."""

from domain.example_plugin import plugin as plugin
from domain.example_plugin.args import Args as Args
