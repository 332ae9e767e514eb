"""Queues share the cluster by their weights."""

from restow.domain.session.plugins.proportion import plugin as plugin
from restow.domain.session.plugins.proportion.args import Args as Args
