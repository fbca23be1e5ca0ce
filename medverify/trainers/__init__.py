"""What a trainer imports to be rewarded by a running service: one module each. They need no torch and no trainer to import."""
