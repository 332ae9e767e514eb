"""Nodes that become fuller are preferred."""

from restow.domain.session.plugins.binpack import plugin as plugin
from restow.domain.session.plugins.binpack.args import Args as Args
