"""`restow trace`: traces of pods and plans, from the log."""
