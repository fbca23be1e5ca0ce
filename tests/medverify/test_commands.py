import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from front_door_fakes import judgment

from configs.load import schema_of
from configs.settings import Settings
from eval.journal import to_line
from medverify.cli.app import app

Cli = Callable[..., Any]


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    command = command or typer.main.get_command(app)
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMANDS = list(commands())


def test_the_list_of_commands() -> None:
    assert {" ".join(path) for path, _ in COMMANDS} == {
        "", "demo", "verify", "search", "serve", "score", "calibrate", "models", "doctor", "schema", "eval",
        "attack", "rerank",
        "config", "config show", "index", "index build", "index info", "index verify", "index plan", "index bench",
        "index add-bm25", "index eval", "index compress", "retrieve", "retrieve serve",
        "generate", "benchmark", "benchmark list", "benchmark show", "benchmark fetch", "benchmark overlap",
        "keys", "keys add", "keys list", "keys revoke",
        "world", "swapped-facts", "pool", "train", "verl", "verl filter",
    }  # fmt: skip


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) or "medverify" for path, _ in COMMANDS])
def test_help_teaches(cli: Cli, path: tuple[str, ...], command: Any) -> None:
    result = cli(*path, "--help")
    assert result.exit_code == 0
    assert command.help
    words = " ".join(result.output.split())
    assert " ".join(command.help.split()[:8]) in words
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} has no help"
        assert " ".join(parameter.help.split()[:3]) in words


def test_no_command_at_all_is_an_invitation(cli: Cli) -> None:
    assert "medverify demo" in cli().output


@pytest.mark.parametrize("arguments", [["verfy"], ["verify"], ["verify", "x", "--jsn"], ["search", "x", "-k", "0"]])
def test_misspelt_commands_are_bad_input(cli: Cli, arguments: list[str]) -> None:
    assert cli(*arguments).exit_code == 2


# ---- config show -----------------------------------------------------------------------------------------------------


def test_every_setting_with_its_origin(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("judge:\n  top_k: 5\n  sampling:\n    seed: 9\n  limits:\n    max_turns: 3\n")
    result = cli(
        "config", "show", "--json", "-c", file, "--set", "judge.limits.max_turns=7",
        MEDVERIFY_JUDGE__LIMITS__MAX_TURNS="6", MEDVERIFY_JUDGE__SAMPLING__SEED="8",
    )  # fmt: skip
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert set(found) == set(schema_of(Settings).fields)
    assert found["judge.top_k"] == {"value": 5, "origin": "file mine.yaml:2"}
    assert found["judge.sampling.seed"] == {"value": 8, "origin": "env MEDVERIFY_JUDGE__SAMPLING__SEED"}
    assert found["judge.limits.max_turns"] == {"value": 7, "origin": "flag"}
    assert found["judge.mode"] == {"value": "auto", "origin": "default"}


def test_settings_for_people(cli: Cli) -> None:
    result = cli("config", "show", "-c", "laptop", "--set", "judge.guided.claim_lead=[/b] The reasoning [claims]")
    assert result.exit_code == 0
    assert "[/b] The reasoning [claims]" in result.stdout
    assert "file laptop.yaml:" in result.stdout
    assert "How the policy's tokens are drawn" not in result.stdout
    assert "0 is greedy." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "judge.sampling.sead=1"], "unknown setting judge.sampling.sead; did you mean judge.sampling.seed?"),
        (
            ["--set", "judge.limits.max_turns=0"],
            "judge.limits.max_turns = 0: input should be greater than or equal to 1",
        ),
        (["--set", "judge.limits"], "flag judge.limits: expected key=value"),
        (["--set", "judge.mode=free [/b]"], "judge.mode = 'free [/b]'"),
        (["-c", "labtop"], "did you mean laptop?"),
    ],
)
@pytest.mark.parametrize(
    "command", [["config", "show"], ["verify", "absent.jsonl"], ["serve"], ["demo"], ["models"], ["doctor"]]
)
def test_settings_that_are_wrong_end_every_command(
    cli: Cli, command: list[str], arguments: list[str], message: str
) -> None:
    result = cli(*command, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert not result.stdout


def test_wrong_variables_are_named(cli: Cli) -> None:
    result = cli("config", "show", MEDVERIFY_JUDGE__TOPK="3")
    assert result.exit_code == 2
    assert "env MEDVERIFY_JUDGE__TOPK: unknown setting judge.topk; did you mean judge.top_k?" in result.stderr


# ---- models, doctor, schema ------------------------------------------------------------------------------------------


def test_models(cli: Cli) -> None:
    records = json.loads(cli("models", "--json").stdout)
    by_name = {record["name"]: record for record in records}
    assert {"smollm2-135m-instruct", "minilm-l6"} <= set(by_name)
    for record in records:
        assert record["kind"] in ("judge", "encoder", "cross-encoder")
        assert isinstance(record["available"], bool)
        assert record["origin"]
        assert record["licence"]
    text = cli("models").stdout
    assert all(name in text for name in by_name)


def test_doctor(cli: Cli, tmp_path: Path) -> None:
    cache = tmp_path / "[embedded]"
    result = cli("doctor", "--json", "--set", f"paths.cache={cache}")
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert {"python", "cpu", "memory", "torch", "faiss", "serve", "cache", "index"} <= set(checks)
    assert {check["state"] for check in checks.values()} <= {"ok", "warn", "missing"}
    assert checks["cache"]["detail"] == str(cache)
    missing = any(check["state"] == "missing" for check in checks.values())
    assert result.exit_code == (2 if missing else 0)
    assert not cache.exists()  # it only looks


def test_doctor_for_people_hides_nothing_in_brackets(cli: Cli, tmp_path: Path) -> None:
    """The fixes name extras, such as 'medverify[embedded]', which a terminal library may take for a style."""
    result = cli("doctor", "--set", f"paths.cache={tmp_path}/[embedded]", COLUMNS="300")
    assert "/[embedded]" in result.stdout


def test_doctor_fails_where_the_wanted_model_is_missing(cli: Cli) -> None:
    result = cli("doctor", "--json", "--set", "judge.model=llama-3.1-8b-instruct", HF_HUB_CACHE="/nonexistent")
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert checks["judge llama-3.1-8b-instruct"]["state"] == "missing"
    assert "hf download" in checks["judge llama-3.1-8b-instruct"]["fix"]
    assert result.exit_code == 2


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (value for key, value in schema.items() if key == "$ref" and isinstance(value, str))
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from references(part)


def test_schema(cli: Cli) -> None:
    schemas = json.loads(cli("schema").stdout)
    assert set(schemas) == {"Case", "Question", "Trace", "Passage", "Search", "Judgment"}
    for name, schema in schemas.items():
        assert schema["type"] == "object"
        assert schema["title"] == name
        assert set(schema.get("required", [])) <= set(schema["properties"])
        assert {reference.removeprefix("#/$defs/") for reference in references(schema)} <= set(schema.get("$defs", {}))
    fields = schemas["Judgment"]["properties"]
    assert {"type": "null"} in fields["verdict"]["anyOf"]
    assert {"type": "null"} in fields["p_correct"]["anyOf"]
    assert set(fields) == set(json.loads(to_line(judgment())))


# ---- verify, before any model is loaded ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no case to judge"),
        (b"junk [/red]\n", "line 1: not JSON"),
        (b'{"id": "x", "trace": "t", "[/b]": 1}', "line 1: question: Field required; [/b]: Extra inputs"),
        (gzip.compress(b"{}" * 100, mtime=0)[:20], "damaged gzip"),
        (None, "no such file"),
    ],
)
def test_a_file_without_a_case_is_bad_input(cli: Cli, tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "[in].jsonl"
    if content is not None:
        path.write_bytes(content)
    result = cli("verify", path)
    assert result.exit_code == 2
    assert message in result.stderr
    assert str(path) in result.stderr
    assert "[red]" not in result.stderr
    assert not result.stdout


def test_an_output_that_is_no_file_is_refused_before_a_model_is_looked_for(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"id": "a", "question": "q", "trace": "t"}\n')
    result = cli("verify", path, "-o", "/dev/null", "--model", "none-such")
    assert result.exit_code == 2
    assert "/dev/null is not a regular file" in " ".join(result.output.split())


def test_a_missing_pack_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    result = cli("verify", "--traces", "1", tmp_path / "pack")
    assert result.exit_code == 2
    assert "no such file" in result.stderr


def test_a_pack_with_a_fault_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pack.questions.jsonl").write_text('{"id": "q"}\n')
    result = cli("verify", "--traces", "1", tmp_path / "pack")
    assert result.exit_code == 2
    assert "line 1: question: Field required" in result.stderr


@pytest.mark.parametrize("command", ["verify", "serve", "demo"])
def test_a_model_that_is_not_known_is_bad_input(cli: Cli, tmp_path: Path, command: str) -> None:
    pytest.importorskip("transformers", reason="the message comes after the libraries are loaded")
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "x", "question": "q", "trace": "t"}')
    result = cli(command, *([path] if command == "verify" else []), "--model", "smollm2")
    assert result.exit_code == 2
    assert "smollm2 is neither a folder nor a known model. Did you mean smollm2-135m-instruct?" in result.stderr


# ---- index plan ------------------------------------------------------------------------------------------------------


def test_a_plan_for_a_table_and_for_programs(cli: Cli) -> None:
    table = cli("index", "plan", "--rows", "24000000")
    assert table.exit_code == 0
    assert "36.9" in table.stdout  # GB in fp16
    lines = [json.loads(line) for line in cli("index", "plan", "--rows", "24000000", "--json").stdout.splitlines()]
    found = next(line for line in lines if line["machine"].startswith("H200") and line["profile"] == "fp16")
    assert (found["bytes"], found["devices"], found["batch"]) == (36_864_000_000, 1, 64)


def test_an_index_of_nothing_is_not_planned(cli: Cli) -> None:
    assert cli("index", "plan", "--rows", "0").exit_code == 2
