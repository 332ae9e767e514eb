"""Queues share the cluster by their weights."""

from restow.domain.session.plugins.proportion.args import Args as Args
