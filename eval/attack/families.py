"""All families of attacks, in the order of the report."""

from collections.abc import Mapping

from eval.attack.attack import Family
from eval.attack.forgery import FORGED_EVIDENCE, FORGED_VERDICT
from eval.attack.keys import DO_NOTHING, MASTER_KEY
from eval.attack.persuasion import AUTHORITY, FLATTERY, INSTRUCTION
from eval.attack.poison import POISONED_PASSAGE
from eval.attack.surface import LENGTH, LOOKALIKES, REWRITE
from eval.attack.swaps import RIGHT_ANSWER_WRONG_REASONING, WRONG_ANSWER_RIGHT_REASONING

CLEAN = Family("clean", "The traces as they are", {"original": lambda base, random: base.trace})

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        REWRITE,
        MASTER_KEY,
        DO_NOTHING,
        FORGED_VERDICT,
        FORGED_EVIDENCE,
        AUTHORITY,
        FLATTERY,
        INSTRUCTION,
        LENGTH,
        LOOKALIKES,
        POISONED_PASSAGE,
        RIGHT_ANSWER_WRONG_REASONING,
        WRONG_ANSWER_RIGHT_REASONING,
    )
}


class UnknownFamilyError(ValueError):
    """A family that there is not; the message lists those there are."""


def chosen(names: str) -> tuple[Family, ...]:
    """Families by their names with commas between them, in the order of the report; all for an empty text.

    Raises:
        UnknownFamilyError: a name is not a family's.
    """
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    if unknown := sorted(wanted - set(FAMILIES)):
        raise UnknownFamilyError(f"no family named {', '.join(unknown)}; there are: {', '.join(FAMILIES)}")
    return tuple(family for name, family in FAMILIES.items() if not wanted or name in wanted)
