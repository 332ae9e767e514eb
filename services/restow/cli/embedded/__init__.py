"""The embedded stack: everything on one machine, as real processes, inside one folder."""
