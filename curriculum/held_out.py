"""Examples that a run is measured on and never trained on."""

from curriculum.pool.example import Example
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
