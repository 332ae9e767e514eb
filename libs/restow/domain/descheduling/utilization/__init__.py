"""How much of nodes is used, and what follows: the common parts of HighNodeUtilization and LowNodeUtilization."""
