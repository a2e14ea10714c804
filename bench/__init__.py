"""Measurements. They measure and never judge; tests assert behaviour."""
