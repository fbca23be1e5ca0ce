"""Examples that a run is measured on and never trained on."""

from collections.abc import Sequence

from curriculum.pool.errors import PoolError
from curriculum.pool.example import Example, text_key
from curriculum.pool.pool import Pool
from curriculum.settings import HeldOut
from verifier.packs import read_pack

_NAME = "held-out"


def read_held_out(settings: HeldOut) -> list[Example]:
    """Examples of the pack that settings name, half per label; none if they name none. The same ones every time.

    Raises:
        PackError: the pack cannot be read.
    """
    if settings.pack is None:
        return []
    examples = (
        Example(labelled.case, labelled.label, labelled.question_id, _NAME)
        for labelled in read_pack(settings.pack)
        if labelled.label is not None
    )
    return Pool(examples, seed=0).draw(settings.examples + settings.examples % 2)


def refuse_shared(held_out: Sequence[Example], pool: Sequence[Example]) -> None:
    """See that nothing is both trained on and measured on.

    Raises:
        PoolError: a held-out text is in the pool.
    """
    known = {text_key(example.case) for example in held_out}
    shared = [example.case.id for example in pool if text_key(example.case) in known]
    if shared:
        raise PoolError(
            f"{len(shared)} held-out examples are in the pool too, first {shared[0]}: hold out another pack"
        )
