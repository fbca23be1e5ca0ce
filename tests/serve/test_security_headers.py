import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient

from serve.errors import ServiceError, install
from serve.security_headers import SecurityHeaders

app = FastAPI()
install(app)
app.add_middleware(SecurityHeaders)


@app.get("/plain")
async def plain() -> PlainTextResponse:
    return PlainTextResponse("text")


@app.get("/own")
async def own() -> PlainTextResponse:
    return PlainTextResponse(
        "text", headers={"Cache-Control": "max-age=60", "Content-Security-Policy": "default-src 'none'"}
    )


@app.get("/refused")
async def refused() -> None:
    raise ServiceError(503, "overloaded", "Busy", "busy", {"Retry-After": "3"})


@pytest.mark.parametrize(("path", "status"), [("/plain", 200), ("/refused", 503), ("/nowhere", 404)])
def test_every_answer_has_them(path: str, status: int) -> None:
    response = TestClient(app).get(path)
    assert response.status_code == status
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-store"
    policy = response.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy


def test_a_route_may_say_otherwise() -> None:
    headers = TestClient(app).get("/own").headers
    assert headers.get_list("cache-control") == ["max-age=60"]
    assert headers.get_list("content-security-policy") == ["default-src 'none'"]
    assert headers["x-content-type-options"] == "nosniff"
