"""Intervals of statistics: the jackknife, and observations whose errors correlate."""
