"""Who gets in: every route of the service is walked, so that a new one cannot be forgotten."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from serve_fakes import CASE, INFO, judge_of

from configs.settings import ServeSettings
from serve.app import create_app
from serve.keys import FILE, KeyStore, Scope
from serve.keys_first import OPEN, OPEN_FOLDERS
from serve.stores import Stores

#: Routes for keys that make nothing work, with the scopes of which one is needed. All others need `judge`.
READING = {
    "/info": {Scope.READ, Scope.JUDGE},
    "/metrics": {Scope.READ},
    "/judgments": {Scope.READ, Scope.JUDGE},
    "/judgments/{id}": {Scope.READ, Scope.JUDGE},
    "/jobs": {Scope.READ, Scope.JUDGE},
    "/jobs/{id}": {Scope.READ, Scope.JUDGE},
    "/jobs/{id}/results": {Scope.READ, Scope.JUDGE},
}
SEARCHING = {"/retrieve", "/get_observation"}


def walk(routes: Sequence[Any]) -> Iterator[tuple[str, set[str]]]:
    """Path and methods of every route, those of included routers too, which FastAPI may keep as they are."""
    for route in routes:
        if (included := getattr(route, "original_router", None)) is not None:
            yield from walk(included.routes)
        else:
            yield route.path, getattr(route, "methods", None) or {"GET"}  # a folder of files has no methods


def is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_FOLDERS)


@dataclass(frozen=True)
class Service:
    app: FastAPI
    client: TestClient
    keys: KeyStore

    def routes(self) -> list[tuple[str, str]]:
        """Methods and paths of everything that needs a key."""
        found = [(method, path) for path, methods in walk(self.app.routes) for method in sorted(methods)]
        return [(method, path) for method, path in found if not is_open(path) and method != "HEAD"]

    def ask(self, method: str, path: str, headers: dict[str, str]) -> int:
        path = path.replace("{id}", "0" * 26)
        body = {"json": {}} if method in ("POST", "PUT", "PATCH") else {}
        return self.client.request(method, path, headers=headers, **body).status_code  # type: ignore[arg-type]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    stores = Stores(keys=KeyStore(tmp_path / FILE))
    app = create_app(judge_of(), ServeSettings(keys="required"), INFO, stores)
    keys = KeyStore(tmp_path / FILE)  # as the command line has it, while the service runs
    with TestClient(app) as client:
        yield Service(app, client, keys)
    keys.close()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_the_walk_finds_the_routes(service: Service) -> None:
    assert ("POST", "/verify") in service.routes()
    assert ("GET", "/judgments/{id}") in service.routes()


def test_every_route_refuses_a_missing_a_wrong_and_a_revoked_key(service: Service) -> None:
    everything = service.keys.add("everything", list(Scope))
    revoked = service.keys.add("revoked", list(Scope))
    for method, path in service.routes():
        assert service.ask(method, path, bearer(revoked)) not in (401, 403), f"{method} {path}"
    service.keys.revoke("revoked")
    refused = {
        "missing": {},
        "empty": {"Authorization": ""},
        "empty bearer": {"Authorization": "Bearer "},
        "another scheme": {"Authorization": f"Basic {everything}"},
        "wrong": bearer("mv_" + "x" * 43),
        "cut short": bearer(everything[:-1]),
        "revoked": bearer(revoked),
        "revoked, in the other header": {"X-API-Key": revoked},
    }
    for method, path in service.routes():
        for why, headers in refused.items():
            assert service.ask(method, path, headers) == 401, f"{method} {path} with a key that is {why}"
        for headers in (bearer(everything), {"X-API-Key": everything}):
            assert service.ask(method, path, headers) not in (401, 403), f"{method} {path}"


@pytest.mark.parametrize("scope", list(Scope))
def test_a_key_is_good_for_its_scope_alone(service: Service, scope: Scope) -> None:
    token = service.keys.add("one", [scope])
    for method, path in service.routes():
        needed = {Scope.RETRIEVE} if path in SEARCHING else {Scope.JUDGE}
        if method == "GET":
            needed = READING.get(path, needed)
        status = service.ask(method, path, bearer(token))
        assert (status == 403) is (scope not in needed), f"{method} {path} with {scope}: {status}"


def test_what_is_open_is_known_by_name(service: Service) -> None:
    """A route that is to be open is added here and in `serve.keys_first`, and on purpose."""
    assert {"/", "/health", "/ready", "/openapi.json"} == OPEN
    assert OPEN_FOLDERS == ("/page/",)
    service.keys.add("me", [Scope.JUDGE])  # nobody could come in before, and it would not be ready
    for path in OPEN & {path for path, _ in walk(service.app.routes)}:
        assert service.ask("GET", path, {}) == 200, path


def test_a_route_that_forgot_to_ask_is_closed_all_the_same(service: Service) -> None:
    """The test of scopes above would find it; until then nobody without a key does."""
    service.app.add_api_route("/forgotten", lambda: "secret")
    assert service.ask("GET", "/forgotten", {}) == 401
    assert service.ask("GET", "/forgotten", bearer(service.keys.add("any", [Scope.READ]))) == 200


def test_nobody_without_a_key_has_a_body_read(service: Service) -> None:
    """Refused for the key, not for the size: what is refused first costs nothing."""
    huge = b"[" * 50_000_000
    assert service.client.post("/verify", content=huge, headers={"Content-Type": "application/json"}).status_code == 401


def test_a_refusal_is_a_problem_that_says_how_to_get_in(service: Service) -> None:
    response = service.client.post("/verify", json=CASE)
    assert response.status_code == 401
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["www-authenticate"] == 'Bearer realm="medverify"'
    assert "Authorization: Bearer" in response.json()["detail"]
    reading = service.keys.add("dashboard", [Scope.READ])
    response = service.client.post("/verify", json=CASE, headers=bearer(reading))
    assert response.status_code == 403
    assert response.json()["detail"] == "it needs the scope judge"


def test_a_key_that_is_revoked_ends_at_once(service: Service) -> None:
    token = service.keys.add("trainer", [Scope.JUDGE])
    assert service.client.post("/verify", json=CASE, headers=bearer(token)).json()["status"] == "scored"
    service.keys.revoke("trainer")
    assert service.client.post("/verify", json=CASE, headers=bearer(token)).status_code == 401


def test_keys_come_into_force_while_a_service_runs(tmp_path: Path) -> None:
    app = create_app(judge_of(), ServeSettings(), INFO, Stores(keys=KeyStore(tmp_path / FILE)))
    with TestClient(app) as client:
        assert client.post("/verify", json=CASE).status_code == 200
        keys = KeyStore(tmp_path / FILE)
        token = keys.add("trainer", [Scope.JUDGE])
        assert client.post("/verify", json=CASE).status_code == 401
        assert client.post("/verify", json=CASE, headers=bearer(token)).status_code == 200
        keys.close()


def test_the_description_tells_of_keys(service: Service) -> None:
    description = service.client.get("/openapi.json").json()
    assert {scheme["type"] for scheme in description["components"]["securitySchemes"].values()} == {"http", "apiKey"}
    for method, path in service.routes():
        route = description["paths"][path][method.lower()]
        assert route["security"], path
        assert {"401", "403"} <= set(route["responses"]), path


def test_every_answer_has_the_security_headers(service: Service) -> None:
    for method, path in [*service.routes(), ("GET", "/health"), ("GET", "/nowhere"), ("DELETE", "/verify")]:
        response = service.client.request(method, path.replace("{id}", "0" * 26))
        assert response.headers["x-content-type-options"] == "nosniff", path
        assert response.headers["cache-control"] == "no-store", path


def test_a_service_that_can_let_nobody_in_is_not_ready(service: Service) -> None:
    def ready() -> tuple[int, str | None]:
        reply = service.client.get("/ready")
        return reply.status_code, reply.json().get("type")

    assert ready() == (503, "urn:medverify:problem:no-key")
    service.keys.add("trainer", [Scope.JUDGE])
    assert ready() == (200, None)
    service.keys.revoke("trainer")
    assert ready() == (503, "urn:medverify:problem:no-key")
