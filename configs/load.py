"""Settings in force, and where each value came from.

One precedence, lowest first: defaults in the classes, one YAML file, environment variables, flags. Whatever is wrong in any
of them is collected and reported together, with the place it was written and the name that was probably meant.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from configs import strict_yaml
from configs.settings import Section, Settings

SHIPPED = Path(__file__).parent
PREFIX = "MEDVERIFY_"
DEFAULT = "default"
_OTHER_FILES = {"models", "ray-retrieval", "ray-judge", "kuberay"}  # the catalogue; files for Ray Serve and KubeRay


Kind = TypeVar("Kind", bound=Settings)


class SettingsError(ValueError):
    """Settings that cannot be used; `problems` holds one line for each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class Row(NamedTuple):
    """One line of the table of settings."""

    key: str
    value: Any
    origin: str
    description: str


@dataclass(frozen=True, slots=True)
class Schema:
    """What settings of a kind there are."""

    kind: type[Settings]
    fields: Mapping[str, FieldInfo]  # by dotted key, in the order of declaration
    sections: frozenset[str]


@dataclass(frozen=True)
class LoadedSettings(Generic[Kind]):
    """Settings, and for every dotted key the place its value was taken from."""

    settings: Kind
    origins: Mapping[str, str]

    def rows(self) -> list[Row]:
        """Every setting in the order of declaration."""
        values = dict(_leaves(self.settings.model_dump()))
        fields = schema_of(type(self.settings)).fields
        return [Row(key, values[key], self.origins[key], field.description or "") for key, field in fields.items()]


class _Given(NamedTuple):
    """A value that somebody wrote, and where."""

    key: str
    value: Any
    origin: str


def load_settings(
    file: str | Path | None,
    environ: Mapping[str, str],
    overrides: Sequence[str] = (),
    kind: type[Kind] = Settings,  # type: ignore[assignment]
) -> LoadedSettings[Kind]:
    """Merge `file` (a shipped name such as `laptop`, or a path), the environment and `section.key=value` flags.

    Args:
        kind: `Settings`, or a class with more sections.

    Raises:
        SettingsError: something in them cannot be used.
    """
    schema = schema_of(kind)
    variables = {name.upper(): text for name, text in environ.items() if name.upper().startswith(PREFIX)}
    problems: list[str] = []
    given = [
        *_from_file(schema, file or variables.get(f"{PREFIX}CONFIG"), problems),
        *_from_environment(schema, variables, problems),
        *_from_flags(schema, overrides, problems),
    ]
    origins = dict.fromkeys(schema.fields, DEFAULT)
    tree: dict[str, Any] = {}
    for key, value, origin in given:  # later levels overwrite earlier ones
        origins[key] = origin
        *sections, name = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = value
    try:
        # Strict, or `true` would pass for 1; as JSON, or strictness would refuse text for a path.
        settings = kind.model_validate_json(json.dumps(tree, default=str), strict=True)
    except ValidationError as error:
        problems += (_describe(problem["loc"], problem["input"], problem["msg"], origins) for problem in error.errors())
        raise SettingsError(problems) from error
    if problems:
        raise SettingsError(problems)
    return LoadedSettings(settings, origins)


def shipped_names() -> list[str]:
    """Names of the settings files that come with the package."""
    return sorted(file.stem for file in SHIPPED.glob("*.yaml") if file.stem not in _OTHER_FILES)


def config_path(name: str | Path) -> Path:
    """The file meant by a shipped name or a path. A shipped name wins over a file of that name: write `./name` for it."""
    if str(name) in shipped_names():
        return SHIPPED / f"{name}.yaml"
    path = Path(name).expanduser()
    if path.is_file():
        return path
    hint = _did_you_mean(str(name), shipped_names())
    raise SettingsError([f"no settings file {name}{hint}; shipped: {', '.join(shipped_names())}"])


def _from_file(schema: Schema, name: str | Path | None, problems: list[str]) -> list[_Given]:
    if not name:
        return []
    try:
        path = config_path(name)
        loader = strict_yaml.StrictLoader(path.read_bytes())
        root = loader.get_single_node()
        return list(_walk(schema, loader, root, "", path.name, problems)) if root else []
    except SettingsError as error:
        problems += error.problems
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problems.append(f"file {path.name}:{line}: {error.problem}")
    except yaml.YAMLError as error:
        problems.append(f"file {path.name}: {error}")
    return []


def _walk(  # noqa: PLR0917 - a recursion that hands down what it was given
    schema: Schema, loader: strict_yaml.StrictLoader, node: yaml.Node, section: str, file: str, problems: list[str]
) -> Iterator[_Given]:
    """The settings below a section's node, each with its line."""
    if not isinstance(node, yaml.MappingNode):
        if loader.construct_object(node) is not None:  # an empty section, or one of comments only, is fine
            where = f"file {file}:{node.start_mark.line + 1}"
            problems.append(f"{where}: {section or 'the file'} must be a section of `key: value` lines")
        return
    strict_yaml.refuse_duplicates(node)
    for key_node, value_node in node.value:
        key = f"{section}.{key_node.value}" if section else key_node.value
        origin = f"file {file}:{key_node.start_mark.line + 1}"
        if key in schema.sections:
            yield from _walk(schema, loader, value_node, key, file, problems)
        elif _known(schema, key, origin, problems):
            yield _Given(key, loader.construct_object(value_node, deep=True), origin)


def _from_environment(schema: Schema, variables: Mapping[str, str], problems: list[str]) -> Iterator[_Given]:
    for name, text in variables.items():
        tail = name.removeprefix(PREFIX).lower()
        # The prefix is shared with variables that are no settings, such as a client's address. Ours name a section.
        if "__" not in tail and not tail.startswith(tuple(f"{section}_" for section in schema.sections)):
            continue
        key, origin = tail.replace("__", "."), f"env {name}"
        if _known(schema, key, origin, problems):
            yield _Given(key, _parse(schema, key, text), origin)


def _from_flags(schema: Schema, overrides: Sequence[str], problems: list[str]) -> Iterator[_Given]:
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            problems.append(f"flag {override}: expected key=value")
        elif _known(schema, key.strip(), "flag", problems):
            yield _Given(key.strip(), _parse(schema, key.strip(), text), "flag")


def _parse(schema: Schema, key: str, text: str) -> Any:
    """The value of a variable or flag: YAML, except that text stays text (a cache of `~` is not null)."""
    return text if schema.fields[key].annotation in (str, Path) else strict_yaml.scalar(text)


def _known(schema: Schema, key: str, origin: str, problems: list[str]) -> bool:
    if key in schema.fields:
        return True
    if key in schema.sections:
        first = next(field for field in schema.fields if field.startswith(f"{key}."))
        problems.append(f"{origin}: {key} is a section; set one of its keys, such as {first}")
    else:
        problems.append(f"{origin}: unknown setting {key}{_did_you_mean(key, [*schema.fields, *schema.sections])}")
    return False


def _did_you_mean(name: str, valid: Sequence[str]) -> str:
    """A hint with the nearest of `valid`, compared whole and, failing that, by the last part alone."""
    by_last_part = {candidate.rsplit(".", 1)[-1]: candidate for candidate in reversed(valid)}
    near = difflib.get_close_matches(name, valid, n=1) or [
        by_last_part[part] for part in difflib.get_close_matches(name.rsplit(".", 1)[-1], by_last_part, n=1)
    ]
    return f"; did you mean {near[0]}?" if near else ""


def _describe(location: tuple[int | str, ...], value: Any, message: str, origins: Mapping[str, str]) -> str:
    key = ".".join(map(str, location))
    reason = message[:1].lower() + message[1:]
    # A check of a whole section has no single value or origin.
    return f"{origins[key]}: {key} = {_short(value)}: {reason}" if key in origins else f"{key}: {reason}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _fields(section: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _fields(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


@cache
def schema_of(kind: type[Settings]) -> Schema:
    """What settings of a kind there are."""
    fields = dict(_fields(kind))
    sections = {key.rsplit(".", depth)[0] for key in fields for depth in range(1, key.count(".") + 1)}
    return Schema(kind, fields, frozenset(sections))
