"""Every route of the application, asked for what its description allows and for what it does not: no error of our own.

Routes that are added to the application are covered by being there.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import (
    CheckContext,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serve_fakes import CASE, INFO, judge_of

from configs.settings import PathSettings, ServeSettings, Settings
from serve.app import create_app
from serve.errors import MEDIA_TYPE
from serve.listen import GuardedProtocol
from serve.stores import Stores
from verifier.coherence import coherence_judge

_EXAMPLES = 8  # of each kind for each route: some hundreds in all
_QUICK = settings(
    max_examples=_EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    description: dict[str, Any]

    @property
    def posts(self) -> list[str]:
        return [path for path, route in self.description["paths"].items() if "post" in route]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The whole application on a real socket, with everything that it keeps."""
    all_settings = Settings(paths=PathSettings(state=tmp_path_factory.mktemp("state")), serve=ServeSettings())
    judge = judge_of(deadline_s=5.0)
    app = create_app(judge, all_settings.serve, INFO, Stores.of(all_settings), coherence=coherence_judge(judge))
    config = uvicorn.Config(app, port=0, log_level="critical", ws="none", http=GuardedProtocol)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    host, port = server.servers[0].sockets[0].getsockname()
    url = f"http://{host}:{port}"
    yield Running(url, httpx2.get(f"{url}/openapi.json").json())
    server.should_exit = True
    thread.join()


def no_error_of_ours(_: CheckContext, response: schemathesis.Response, case: schemathesis.Case) -> bool | None:
    """Nothing but a refusal that says when to come back may begin with a 5."""
    assert response.status_code < 500 or response.status_code == 503, response.text
    assert response.status_code != 503 or "retry-after" in response.headers
    if response.status_code >= 400:
        assert response.headers["content-type"] == [MEDIA_TYPE]
    return None


_CHECKS = [
    no_error_of_ours,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def test_every_route_answers_as_its_description_says(service: Running) -> None:
    schema = schemathesis.openapi.from_dict(service.description)
    schema.config.update(base_url=service.url)
    asked = set[str]()
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:

            @_QUICK
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case) -> None:
                asked.add(case.operation.label)
                case.call_and_validate(checks=_CHECKS)

            if mode is schemathesis.GenerationMode.POSITIVE:
                ask()
            else:
                with suppress(Unsatisfiable):  # a route without parameters can be asked for nothing wrong
                    ask()
    assert len(asked) == sum(len(route) for route in service.description["paths"].values())


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_FIELDS = (
    "id",
    "case",
    "cases",
    "question",
    "options",
    "trace",
    "text",
    "steps",
    "seed",
    "deadline_s",
    "label",
    "kind",
)


def bent(example: Any) -> st.SearchStrategy[Any]:
    """An example that fits, with some of its fields replaced, added or gone."""
    if not isinstance(example, dict):
        return st.just(example) | anything
    changes = st.dictionaries(st.sampled_from([*_FIELDS, *example]), anything, max_size=3)
    gone = st.sets(st.sampled_from(sorted(example)), max_size=1) if example else st.just(set[str]())
    return st.builds(lambda new, out: {k: v for k, v in {**example, **new}.items() if k not in out}, changes, gone)


def examples_of(description: dict[str, Any], path: str) -> list[Any]:
    """Bodies that the description gives for a route, here or in the models that it names."""
    found = list[Any]()

    def look(part: Any, depth: int = 0) -> None:
        if isinstance(part, dict) and depth < 6:
            found.extend(part.get("examples", []) if isinstance(part.get("examples"), list) else [])
            if "$ref" in part:
                look(description["components"]["schemas"][part["$ref"].rpartition("/")[2]], depth + 1)
            for key in ("anyOf", "oneOf", "schema", "content", "application/json"):
                inner = part.get(key)
                for one in inner if isinstance(inner, list) else [inner]:
                    look(one, depth + 1)

    look(description["paths"][path]["post"].get("requestBody", {}))
    return found or [CASE]


def bodies_of(description: dict[str, Any], path: str) -> st.SearchStrategy[tuple[str, bytes]]:
    """What may be sent to a route: anything, nearly what it wants, and noise."""
    near = st.sampled_from(examples_of(description, path)).flatmap(bent)
    as_json = st.one_of(anything, near, near).map(lambda value: json.dumps(value).encode())
    return st.tuples(st.just(path), as_json | st.binary(max_size=200))


def test_no_body_is_an_error_of_ours(service: Running) -> None:
    kinds = ["application/json"] * 5 + ["text/plain", "application/x-www-form-urlencoded"]
    asked = set[str]()
    with httpx2.Client(base_url=service.url, timeout=30) as client:

        @settings(_QUICK, max_examples=50 * len(service.posts))
        @given(
            sent=st.sampled_from(service.posts).flatmap(lambda path: bodies_of(service.description, path)),
            kind=st.sampled_from(kinds),
        )
        def post(sent: tuple[str, bytes], kind: str) -> None:
            path, body = sent
            asked.add(path)
            answer = client.post(path, content=body, headers={"Content-Type": kind})
            assert answer.status_code < 500 or answer.status_code == 503, answer.text
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == MEDIA_TYPE

        post()
        assert asked == set(service.posts)
        assert client.get("/ready").json()["cases_in_flight"] == 0
