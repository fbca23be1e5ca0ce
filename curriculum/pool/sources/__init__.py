"""Where labelled traces come from."""
