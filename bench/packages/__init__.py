"""What is measured of each package and part: a module each. `measures(quick)` gives the numbers.

`quick` makes trials fewer and smaller.
"""
