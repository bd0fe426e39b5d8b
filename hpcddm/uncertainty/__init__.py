"""Intervals of statistics: distributions, the jackknife, and observations whose errors correlate."""
