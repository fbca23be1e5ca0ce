"""The labelled traces that a judge is trained on: read, cleaned, kept apart from evaluation sets, and drawn in balance."""
