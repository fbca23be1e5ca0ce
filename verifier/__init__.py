"""The judge: what a judgment is and the loop that makes one. Used alike by serving, training and evaluation."""
