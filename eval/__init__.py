"""Judging files, and measuring how good a judge is."""
