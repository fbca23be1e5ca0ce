"""The ways in which a planted error differs from the truth, and the two sides that examples are kept apart on."""

from enum import StrEnum


class Fault(StrEnum):
    """How a false statement differs from the true one."""

    ENTITY = "entity"  # another thing of the same kind
    NUMBER = "number"
    DIRECTION = "direction"  # activates and blocks, before and after
    NEGATION = "negation"  # may and must not, is and is not


class Side(StrEnum):
    """What an example is for. Nothing that the one is made of is in the other."""

    TRAIN = "train"
    TEST = "test"
