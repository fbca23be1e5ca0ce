"""What goes into the image is what the package is made of."""

import tomllib
from pathlib import Path


def test_every_package_is_in_the_build_context(repository: Path) -> None:
    """A package that is missing there would be left out of the wheel without a word."""
    build = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    let_in = {
        line.removeprefix("!")
        for line in (repository / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert {*build["packages"], "pyproject.toml", "README.md", "LICENSE"} == let_in
