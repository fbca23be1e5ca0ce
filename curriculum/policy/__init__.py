"""The judge as something to train: its weights, and the log-probabilities that it gives to what was written."""
