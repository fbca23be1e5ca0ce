"""What can be wrong with the material for training."""


class PoolError(ValueError):
    """A source, a mixture or a state that cannot be used; the message says why and what to do."""
