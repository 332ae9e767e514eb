"""Queues with guarantee, deserved and capability, also in a hierarchy."""

from restow.domain.session.plugins.capacity import plugin as plugin
from restow.domain.session.plugins.capacity.args import Args as Args
