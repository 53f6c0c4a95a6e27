"""One module of measurements per package or part. `measures(quick)` returns the numbers.

`quick` makes trials fewer and smaller. Functions that `in_own_process` calls run alone.
"""
