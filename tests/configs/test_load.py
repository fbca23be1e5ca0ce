from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from configs.load import SettingsError, load_settings, schema_of, shipped_names
from configs.settings import Settings

TURNS = "judge.limits.max_turns"
TURNS_VARIABLE = "MEDVERIFY_JUDGE__LIMITS__MAX_TURNS"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text("# comment\njudge:\n  limits:\n    max_turns: 5\n")
    return path


def problems(file: str | Path | None, environ: dict[str, str], overrides: tuple[str, ...] = ()) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(file, environ, overrides)
    return caught.value.problems


def test_nothing_given_is_all_defaults() -> None:
    loaded = load_settings(None, {})
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}


def test_each_level_beats_the_one_below(file: Path) -> None:
    levels = [
        (load_settings(None, {}), 8, "default"),
        (load_settings(file, {}), 5, "file mine.yaml:4"),
        (load_settings(file, {TURNS_VARIABLE: "6"}), 6, f"env {TURNS_VARIABLE}"),
        (load_settings(file, {TURNS_VARIABLE: "6"}, [f"{TURNS}=7"]), 7, "flag"),
    ]
    for loaded, value, origin in levels:
        assert loaded.settings.judge.limits.max_turns == value
        assert loaded.origins[TURNS] == origin


def test_the_last_of_two_flags_counts() -> None:
    assert load_settings(None, {}, [f"{TURNS}=2", f"{TURNS}=3"]).settings.judge.limits.max_turns == 3


def test_a_variable_names_the_file_unless_one_is_given(file: Path) -> None:
    environ = {"MEDVERIFY_CONFIG": str(file)}
    assert load_settings(None, environ).settings.judge.limits.max_turns == 5
    assert load_settings("openai-server", environ).origins[TURNS] == "default"


@pytest.mark.parametrize(
    "text",
    [
        "2001-13-45",
        "!!int abc",
        "9" * 5000,
        "&a [*a]",
        "&a 3",
        "*a",
        "[" * 3000,
        "!!timestamp x",
        "!!binary x",
        "!!bool x",
    ],
)
def test_values_that_are_none_are_told_wherever_they_stand(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(f"serve:\n  port: {text}\n")
    assert problems(None, {}, (f"serve.port={text}",))[0].startswith("flag: serve.port = ")
    assert problems(None, {"MEDVERIFY_SERVE__PORT": text})[0].startswith("env MEDVERIFY_SERVE__PORT: serve.port = ")
    assert problems(file, {})[0].startswith("file odd.yaml:2: ")
    file.write_text(f"{text}\n")
    assert problems(file, {})[0].startswith("file odd.yaml:1: ")


def test_a_few_aliases_do_not_become_a_thousand_million_values(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x]", *(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10))]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join(lines))
    assert problems(file, {}) == ("file bomb.yaml:1: anchors (&) and aliases (*) are not allowed; write the value out",)


def test_variables_are_read_in_any_case() -> None:
    assert load_settings(None, {TURNS_VARIABLE.lower(): "6"}).settings.judge.limits.max_turns == 6


def test_variables_that_are_no_settings_are_left_alone() -> None:
    load_settings(None, {"MEDVERIFY_URL": "http://x", "MEDVERIFY_API_KEY": "k", "PATH": "/bin"})


def test_text_stays_text_in_variables_and_flags() -> None:
    loaded = load_settings(
        None, {"MEDVERIFY_JUDGE__OPENAI__MODEL": "7"}, ["paths.cache=~", "judge.openai.api_key_env="]
    )
    assert loaded.settings.judge.openai.model == "7"
    assert loaded.settings.judge.openai.api_key_env == ""
    assert loaded.settings.paths.cache == Path.home()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("judge.limit.max_turns", "judge.limits.max_turns"),  # a section misspelt
        ("judge.limits.max_turn", "judge.limits.max_turns"),  # a key misspelt
        ("information_tokens", "judge.information_tokens"),  # a key without its section
        ("serv", "serve"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest_name(written: str, meant: str) -> None:
    (problem,) = problems(None, {}, (f"{written}=3",))
    assert problem == f"flag: unknown setting {written}; did you mean {meant}?"


def test_a_single_underscore_between_levels_is_found() -> None:
    (problem,) = problems(None, {"MEDVERIFY_JUDGE_MODEL": "x"})
    assert problem == "env MEDVERIFY_JUDGE_MODEL: unknown setting judge_model; did you mean judge.model?"


def test_everything_wrong_is_reported_at_once_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("judge:\n  modle: x\n  top_k: many\n  limits: 3\nserve:\nretrieval:\n  batch_size: true\n")
    found = problems(file, {"MEDVERIFY_SERVE__PORT": "70000"}, ("judge=3", "nonsense", "judge.mode=fre"))
    assert set(found) == {
        "file bad.yaml:2: unknown setting judge.modle; did you mean judge.mode?",
        "file bad.yaml:3: judge.top_k = 'many': input should be a valid integer",
        "file bad.yaml:4: judge.limits must be a section of `key: value` lines",
        "file bad.yaml:7: retrieval.batch_size = True: input should be a valid integer",
        "env MEDVERIFY_SERVE__PORT: serve.port = 70000: input should be less than or equal to 65535",
        "flag: judge is a section; set one of its keys, such as judge.model",
        "flag nonsense: expected key=value",
        "flag: judge.mode = 'fre': input should be 'auto', 'free' or 'guided'",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("judge:\n  top_k: 1\n  top_k: 2\n", "file broken.yaml:3: key 'top_k' is already set on line 2"),
        ("judge: [1\n", "file broken.yaml:2: expected ',' or ']', but got '<stream end>'"),
        ("- judge\n", "file broken.yaml:1: the file must be a section of `key: value` lines"),
        ("a: \x00", "file broken.yaml: unacceptable character"),
    ],
)
def test_broken_files_are_reported_with_their_line(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    (found,) = problems(file, {})
    assert found.startswith(problem)


def test_an_empty_file_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing yet\n")
    assert load_settings(file, {}).settings == Settings()


def test_an_unknown_file_is_refused_with_the_shipped_names() -> None:
    (problem,) = problems("laptp", {})
    assert problem == "no settings file laptp; did you mean laptop?; shipped: laptop, openai-server, vllm"


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_file_loads(name: str) -> None:
    loaded = load_settings(name, {})
    assert any(origin.startswith(f"file {name}.yaml:") for origin in loaded.origins.values())


def test_rows_describe_every_setting() -> None:
    rows = load_settings("laptop", {}, ["judge.top_k=4"]).rows()
    assert [row.key for row in rows] == list(schema_of(Settings).fields)
    assert all(row.description for row in rows)
    assert next((row.value, row.origin) for row in rows if row.key == "judge.top_k") == (4, "flag")


@example({"paths.cache": "~nobody-of-this-name/x"})
@given(st.dictionaries(st.sampled_from(sorted(schema_of(Settings).fields)), st.text(max_size=8)))
def test_any_text_in_a_known_flag_loads_or_is_explained(flags: dict[str, str]) -> None:
    explained: tuple[str, ...] = ()
    try:
        load_settings(None, {}, [f"{key}={text}" for key, text in flags.items()])
    except SettingsError as error:
        explained = error.problems
    assert len(explained) <= len(flags)
    assert all(problem.startswith("flag: ") for problem in explained)
