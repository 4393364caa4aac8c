"""Synthetic tables, marginals and points."""
