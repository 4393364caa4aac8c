"""Averages of a window's points."""
