"""YAML as we accept it: safe tags only, no key twice, and numbers such as `1e-5` are numbers."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml


class StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses a mapping with the same key twice instead of keeping the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The mapping, once its keys are known to differ."""
        refuse_duplicates(node)
        return super().construct_mapping(node, deep)


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
