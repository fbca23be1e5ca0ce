"""A service whose engine is gone is not ready."""

from fastapi.testclient import TestClient
from serve_fakes import app_of, judge_of, open_engine, writes

from verifier.engines.base import EngineError


def test_a_service_whose_engine_only_fails_is_not_ready_until_it_works_again() -> None:
    works = True
    engine = open_engine()
    engine.script = lambda text: writes(text) if works else EngineError("the model at /models/judge is gone")
    with TestClient(app_of(judge_of(engine))) as client:
        works = False
        for number in range(8):
            assert client.get("/ready").status_code == 200
            judgment = client.post("/verify", json={"question": f"What does drug {number} inhibit?", "trace": "t"})
            assert judgment.json()["status"] == "engine_failed"
        refused = client.get("/ready")
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "5"
        assert refused.json()["detail"] == "the judge's engine failed"  # no path, and no class
        assert client.get("/health").status_code == 200
        works = True
        assert client.get("/ready").status_code == 200


def test_bad_cases_are_no_fault_of_the_engine() -> None:
    with TestClient(app_of()) as client:
        for number in range(10):
            judged = client.post("/verify", json={"question": f"trouble {number}", "trace": "t"})
            assert judged.json()["status"] == "engine_failed"
        assert client.get("/ready").status_code == 200
