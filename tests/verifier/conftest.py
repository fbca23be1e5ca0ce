"""Puts this folder on the import path, so that `verifier_fakes` is found from the engines' tests as well."""
