"""What is measured of each room and part: a module each. `measures(quick)` gives the numbers.

`quick` makes trials fewer and smaller.
"""
