import json
import subprocess
import sys

import medverify

HEAVY = {"torch", "transformers", "numpy", "faiss", "fastapi", "uvicorn", "starlette", "tokenizers", "huggingface_hub"}


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after some code."""
    code += "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_costs_nothing_but_pydantic() -> None:
    loaded = loaded_by("import medverify; medverify.Case(id='x', question='q', trace='t'); medverify.load_judge")
    assert "pydantic" in loaded
    assert not loaded & (HEAVY | {"rich", "typer", "yaml", "httpx2"})


def test_trainers_modules_bring_neither_torch_nor_a_server() -> None:
    names = ("trl", "verl", "verl_advantage", "gym")
    loaded = loaded_by(
        f"import medverify, medverify.errors; from medverify.trainers import {', '.join(names)}; medverify.Client"
    )
    assert "httpx2" in loaded
    assert not loaded & (HEAVY | {"rich", "typer", "yaml", "trl", "verl"})


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_by(
        "import sys; sys.argv = ['medverify', '--help']\n"
        "from medverify.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code"
    )
    assert "typer" in loaded
    assert not loaded & HEAVY


def test_every_name_that_is_promised_is_there() -> None:
    assert all(getattr(medverify, name) for name in medverify.__all__)
    assert medverify.__version__ != "source"
