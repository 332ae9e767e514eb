"""Nodes on which the least room becomes useless for typical pods are preferred."""

from restow.domain.session.plugins.fragmentation import plugin as plugin
from restow.domain.session.plugins.fragmentation.args import Args as Args
