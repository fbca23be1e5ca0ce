"""YAML as we accept it: safe tags only, no key twice, no aliases, and numbers such as `1e-5` are numbers.

Whatever is wrong with a text is a `yaml.YAMLError`.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

_DEEPEST = 32  # a mapping in a mapping …; ours have five levels


class StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses a mapping with the same key twice instead of keeping the last one."""

    _depth = 0

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The mapping, once its keys are known to differ."""
        refuse_duplicates(node)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value; a `yaml.MarkedYAMLError` at one that its tag does not fit, such as a day 45 or 5000 digits."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            raise ConstructorError(None, None, f"not a value: {error!s:.200}", node.start_mark) from error

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next node, if it is written out and not nested out of all measure.

        An alias stands for something written elsewhere: nine lines of ten aliases each are a thousand million values.
        """
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(
                problem="anchors (&) and aliases (*) are not allowed; write the value out",
                problem_mark=event.start_mark,
            )
        if self._depth == _DEEPEST:
            raise yaml.MarkedYAMLError(problem="it is nested too deeply", problem_mark=event.start_mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


# YAML 1.1 reads `1e-5` as text because it has no dot. Nobody who writes it means text.
StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def refuse_duplicates(node: yaml.MappingNode) -> None:
    """Raise a `yaml.MarkedYAMLError` that points at the second use of a key, or at a key that is no plain text."""
    seen: dict[str, yaml.Node] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be plain text", problem_mark=key.start_mark)
        if key.value in seen:
            first = seen[key.value].start_mark.line + 1
            raise yaml.MarkedYAMLError(
                problem=f"key {key.value!r} is already set on line {first}", problem_mark=key.start_mark
            )
        seen[key.value] = key


def read(file: Path) -> Any:
    """The content of a YAML file."""
    with file.open(encoding="utf-8") as stream:
        return yaml.load(stream, StrictLoader)  # noqa: S506 - a subclass of SafeLoader


def scalar(text: str) -> Any:
    """The value that `text` has in a YAML file; text that is not valid YAML stands for itself."""
    try:
        return yaml.load(text, StrictLoader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.YAMLError:
        return text
