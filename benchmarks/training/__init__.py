"""A step of training: ours, the bare `generate` with forward and backward pass, and TRL's GRPOTrainer."""
