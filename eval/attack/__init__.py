"""Attacks on a judge: texts made to be judged wrongly, and how often they succeed."""
