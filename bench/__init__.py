"""Measurements with their controls: ratios taken in one run, on real processes, of which nothing is left behind."""
