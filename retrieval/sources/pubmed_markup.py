"""PubMed's inline markup as plain text that says the same.

Tags vanish, but not what they meant: `10<sup>6</sup>` is not 106. A raised or lowered part that has digits and follows a
digit keeps a sign (`10^6`, `2_3`); where plain writing is the custom it is used (`CO2`, `Ca2+`, `CD4+`, `m2`).
"""

from xml.etree.ElementTree import Element

_MATHML = "{http://www.w3.org/1998/Math/MathML}"
# What goes between the parts of a formula.
_SIGNS = {
    "mfrac": ("/",),
    "msup": ("^",),
    "mover": ("^",),
    "msub": ("_",),
    "munder": ("_",),
    "msubsup": ("_", "^"),
    "munderover": ("_", "^"),
}


def plain_text(element: Element | None) -> str:
    """All text in the element, in order, on one line; empty if there is no element."""
    if element is None:
        return ""
    return " ".join(_inner(element, "").split())


def _inner(element: Element, before: str) -> str:
    """The text inside the element; `before` is what stands before it, to see what a script follows."""
    text = element.text or ""
    for child in element:
        if not isinstance(child.tag, str):  # a comment or a processing instruction
            inner = ""
        elif child.tag.startswith(_MATHML):
            inner = _math(child)
        else:
            inner = _inner(child, before + text)
            sign = {"sup": "^", "sub": "_"}.get(child.tag)
            if sign:
                inner = _script((before + text)[-1:], sign, inner)
        text += inner + (child.tail or "")
    return text


def _script(last: str, sign: str, inner: str) -> str:
    """A raised or lowered part, behind its sign if it would else continue the number that `last` ends."""
    fuses = last.isdigit() and any(character.isdigit() for character in inner)
    return f"{sign}{inner}" if fuses else inner


def _math(element: Element) -> str:
    """A formula in one line: fractions with a slash, scripts with ^ and _, roots with their sign."""
    name = element.tag.removeprefix(_MATHML)
    if name in ("annotation", "annotation-xml"):  # the same formula once more
        return ""
    parts = [_math(child) for child in element if isinstance(child.tag, str)]
    if not parts:
        return (element.text or "").strip()
    if name == "msqrt":
        return f"√({''.join(parts)})"
    signs = _SIGNS.get(name, ())
    if not signs or len(parts) != len(signs) + 1:
        return "".join(parts)
    return _grouped(parts[0]) + "".join(sign + _grouped(part) for sign, part in zip(signs, parts[1:], strict=True))


def _grouped(part: str) -> str:
    return part if part.isalnum() or len(part) == 1 else f"({part})"
