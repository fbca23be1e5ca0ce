"""Public benchmarks of medical questions: read from the hub or from files, checked, and written as packs."""
