"""Pods of a group near to each other in the network."""
