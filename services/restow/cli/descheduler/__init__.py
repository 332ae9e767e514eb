"""`restow descheduler`: upstream's policies against any cluster."""
