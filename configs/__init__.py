"""Typed settings, the shipped YAML files, and the catalogue that turns a model's name into files on disk."""
