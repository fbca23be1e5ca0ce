"""Training the judge: a labelled pool, gates, rollouts, Dr.GRPO."""
