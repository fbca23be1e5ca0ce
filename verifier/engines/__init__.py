"""What runs the judge's language model."""
