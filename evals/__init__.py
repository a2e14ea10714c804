"""Measurements of the gateway as people run it: `python -m evals.NAME`."""
