"""From judgments and packs to all figures of a report: pure functions, none of which loads a model or reads a file."""
