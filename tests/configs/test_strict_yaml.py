from pathlib import Path

import pytest
import yaml

from configs import strict_yaml


def test_a_key_given_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "twice.yaml"
    file.write_text("a: 1\nb:\n  c: 1\n  c: 2\n")
    with pytest.raises(yaml.MarkedYAMLError, match=r"already set on line 3(.|\n)*line 4"):
        strict_yaml.read(file)


def test_a_key_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text("? [a, b]\n: 1\n")
    with pytest.raises(yaml.MarkedYAMLError, match="plain text"):
        strict_yaml.read(file)


def test_tags_that_make_python_objects_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "unsafe.yaml"
    file.write_text("a: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(yaml.YAMLError):
        strict_yaml.read(file)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("1e-5", 1e-5), ("-2E3", -2000.0), ("true", True), ("laptop", "laptop"), ("", None), ("[1", "[1")],
)
def test_scalars(text: str, value: object) -> None:
    found = strict_yaml.scalar(text)
    assert found == value
    assert type(found) is type(value)
