"""What the tests do not see: mutants of `restow.domain`, a sample drawn from a seed, each against the tests that run its line.

`make mutate` (or `python -m tests.mutation`) first runs the tests once and notes which of them runs which line; then it changes one
operator, comparison, number or word of one line at a time, in a copy of the tree, and runs the tests of that line. A mutant that no test
minds survives, and is printed with its change. Mutants are made by cosmic-ray's operators.
"""
