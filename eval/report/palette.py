"""Colours by their role, light and dark.

Figures are drawn once, in stand-in colours that occur nowhere else. A file gets the light colours; within the page a
stand-in becomes a variable of its style sheet, so that figures follow the reader's choice of light or dark.
"""

import re
from typing import NamedTuple


class Role(NamedTuple):
    """One colour: its stand-in in the drawing, and what it is on a light and on a dark page."""

    name: str
    stand_in: str
    light: str
    dark: str


# Series by Okabe and Ito, told apart with any kind of colour vision; shifted a little to have contrast on either ground.
ROLES = (
    Role("ink", "#010203", "#1c2126", "#e6e8ea"),
    Role("muted", "#010204", "#5b6570", "#9ea7b0"),
    Role("line", "#010205", "#d5dade", "#3a4148"),
    Role("ground", "#010206", "#ffffff", "#16191c"),
    Role("series-1", "#010211", "#0062a3", "#56b4e9"),
    Role("series-2", "#010212", "#c04a00", "#ff9a4d"),
    Role("series-3", "#010213", "#00795a", "#2fc79c"),
    Role("series-4", "#010214", "#a24b81", "#e19ac4"),
    Role("series-5", "#010215", "#8a6500", "#e6b422"),
    Role("series-6", "#010216", "#4c5a9e", "#a3b0f0"),
    Role("series-7", "#010217", "#6b6b6b", "#b5b5b5"),
)
INK, MUTED, LINE, GROUND, *SERIES = (role.stand_in for role in ROLES)

_STAND_IN = re.compile("|".join(role.stand_in for role in ROLES))


def for_file(svg: str) -> str:
    """The drawing in light colours."""
    light = {role.stand_in: role.light for role in ROLES}
    return _STAND_IN.sub(lambda found: light[found[0]], svg)


def for_page(svg: str) -> str:
    """The drawing in the variables of the page's style sheet."""
    names = {role.stand_in: f"var(--{role.name})" for role in ROLES}
    return _STAND_IN.sub(lambda found: names[found[0]], svg)


def variables(*, dark: bool) -> str:
    """The declarations that give the variables their values."""
    return " ".join(f"--{role.name}: {role.dark if dark else role.light};" for role in ROLES)
