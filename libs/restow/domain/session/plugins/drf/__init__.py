"""Dominant resource fairness between jobs, and between queues in a hierarchy."""

from restow.domain.session.plugins.drf import plugin as plugin
from restow.domain.session.plugins.drf.args import Args as Args
