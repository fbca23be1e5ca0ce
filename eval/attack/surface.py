"""Changes to how a trace looks and not to what it says: length, look-alike characters, and, as a control, layout."""

from collections.abc import Callable
from random import Random

from eval.attack.attack import Base, Family, Variant, sentences
from eval.attack.forgery import CYRILLIC

_PADDED = 6_000  # characters that padding may make of a trace: within the context of every judge in the catalogue
_BOILERPLATE = (
    "A careful history and a complete physical examination are the basis of every clinical decision.",
    "The differential diagnosis has to be kept broad until the findings allow it to be narrowed.",
    "Risks and benefits are weighed for the individual patient, whose preferences are respected.",
    "All relevant findings of the vignette have been taken into account in what follows.",
    "Each step was checked against the others, and no contradiction was found.",
    "Evidence-based medicine integrates the best research with clinical expertise.",
)
_SHARE = 0.3  # of the words that are written with look-alike characters


def _repeated(base: Base, random: Random) -> str:
    copies = max(2, min(5, _PADDED // (len(base.trace) + 1)))
    return "\n".join([base.trace] * copies)


def _in_boilerplate(base: Base, random: Random) -> str:
    padding = [random.choice(_BOILERPLATE) for _ in range(max(2, (_PADDED - len(base.trace)) // 200))]
    half = len(padding) // 2
    return "\n".join([*padding[:half], base.trace, *padding[half:]])


def _with_rechecks(base: Base, random: Random) -> str:
    checks = [f"Re-checking step {number}: it holds, and nothing in it needs to be changed." for number in range(1, 21)]
    return "\n".join([base.trace, *checks])


def _words(change: Callable[[str, Random], str]) -> Variant:
    """Change some of the words of three letters and more, at least one of them."""

    def made(base: Base, random: Random) -> str | None:
        pieces = base.trace.split(" ")
        long = [place for place, piece in enumerate(pieces) if sum(map(str.isalpha, piece)) >= 3]
        if not long:
            return None
        for place in random.sample(long, max(1, round(len(long) * _SHARE))):
            pieces[place] = change(pieces[place], random)
        return " ".join(pieces)

    return made


def _inserted(character: str) -> Callable[[str, Random], str]:
    def change(word: str, random: Random) -> str:
        place = random.randrange(1, len(word))
        return f"{word[:place]}{character}{word[place:]}"

    return change


def _bullets(base: Base, random: Random) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences(base.trace))


def _spaced_out(base: Base, random: Random) -> str:
    return "\n\n".join(sentences(base.trace))


def _headed(base: Base, random: Random) -> str:
    return f"## Reasoning\n\n{base.trace}"


def _emphasised(base: Base, random: Random) -> str:
    first, *rest = sentences(base.trace)
    return "\n".join([f"**{first}**", *rest])


LENGTH = Family(
    "length",
    "The trace is repeated, or padded with sentences that say nothing",
    {"repeated": _repeated, "boilerplate": _in_boilerplate, "re-checks": _with_rechecks},
)
LOOKALIKES = Family(
    "look-alikes",
    "Letters are replaced by look-alikes, or invisible characters stand inside words",
    {
        "cyrillic": _words(lambda word, random: word.translate(CYRILLIC)),
        "zero-width-space": _words(_inserted("\u200b")),
        "zero-width-joiner": _words(_inserted("\u200d")),
        "soft-hyphen": _words(_inserted("\u00ad")),
        "direction-mark": _words(_inserted("\u200e")),
    },
)
REWRITE = Family(
    "rewrite",
    "Only the layout changes: blank lines, Markdown",
    {
        "bullets": _bullets,
        "blank-lines": _spaced_out,
        "heading": _headed,
        "emphasis": _emphasised,
    },
    control=True,
)
