"""A service whose judge needs no model: what it believes stands in the trace. Importable, and run by the tests of trainers.

`p = 0.7` in a trace is p(1); "trouble" in a question or a trace puts the engine out of order.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from configs.settings import JudgeSettings, ServeSettings
from retrieval.passage import Hit
from serve.app import create_app
from serve.listen import GuardedProtocol
from serve.schemas import Info
from serve.stores import Stores
from verifier.engines.base import EngineError
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.prompt import load_prompt
from verifier.types import Case


class NoBooks:
    digest = "1" * 64

    async def search(self, query: str, k: int) -> list[Hit]:
        raise AssertionError(f"nothing is searched for, and {query!r} was")

    async def aclose(self) -> None:
        """Nothing to close."""


def writes(text: str) -> str | EngineError:
    if "trouble" in text:
        return EngineError("the model is out of order")
    return f"<think>I read it.</think><answer>{int(p_in(text) > 0.5)}</answer>"


def believes(text: str) -> dict[str, float]:
    p = p_in(text)
    return {"1": p, "0": 1 - p} if text.endswith("<answer>") else {}


def p_in(text: str) -> float:
    """`p = 0.7` in the trace is what the judge believes."""
    found = re.search(r"p = (0\.\d+)", text)
    return float(found[1]) if found else 0.75


def judge(delay_s: float = 0.0) -> Judge:
    settings = JudgeSettings(force_verdict=False)
    return Judge(ScriptedEngine(writes, believes, delay_s=delay_s), NoBooks(), load_prompt("judge"), "free", settings)


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    """A real server on a free port, in this event loop; gives its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="none", http=GuardedProtocol))
    running = asyncio.create_task(server.serve())
    while not server.started:
        assert not running.done(), "the server did not start"
        await asyncio.sleep(0.01)
    host, port = server.servers[0].sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await running


def service_app(delay_s: float = 0.0, stores: Stores | None = None, **settings: Any) -> FastAPI:
    """The service around such a judge, which takes `delay_s` for each generation."""
    own = judge(delay_s)
    info = Info(
        judge_id=own.judge_id,
        model="scripted",
        mode="free",
        engine={"engine": "scripted"},
        prompt="judge",
        prompt_digest="p" * 64,
        index_digest="1" * 64,
        version="1.2.3",
        quality=[],
    )
    app = create_app(own, ServeSettings(**settings), info, stores)

    async def judged(cases: list[dict[str, Any]], seed: int | None) -> list[Any]:
        return [await own.verify(Case.model_validate(case), seed) for case in cases]

    @app.post("/reward")
    async def reward(request: Request) -> Any:
        body = await request.json()
        assert body["deadline_s"] > 0
        rewards = []
        for item in body["items"]:
            if item["kind"] == "judge":
                right = f"<answer>{item['label']}</answer>" in item["response"]
                parts = {"accuracy": float(right), "format": 1.0}
                rewards.append({"id": item["id"], "status": "scored", "reward": float(right), "components": parts})
                continue
            case = {name: item[name] for name in ("id", "question", "trace", "options") if name in item}
            [judgment] = await judged([case], None)
            label = item.get("label")
            right = None if label is None else float(item["trace"].rstrip(". ").endswith(label))
            parts = dict.fromkeys(("accuracy", "verifier", "label_match", "coherence", "format"))
            value = judgment.p_correct
            if value is not None:
                parts |= {"accuracy": value, "verifier": value, "label_match": right, "coherence": 0.5}
                weights = body.get("weights") or {"accuracy": 1.0}
                value = sum(weight * (parts[name] or 0) for name, weight in weights.items()) / sum(weights.values())
            rewards.append(
                {
                    "id": item["id"],
                    "status": judgment.status,
                    "reward": value,
                    "components": parts,
                    "detail": judgment.detail,
                    "judge_id": judgment.judge_id,
                }
            )
        return {"version": "1", "rewards": rewards}

    @app.post("/select")
    async def select(request: Request) -> Any:
        body = await request.json()
        cases = [
            {"id": str(place), "question": body["question"], "trace": candidate["trace"]}
            for place, candidate in enumerate(body["candidates"])
        ]
        judgments = await judged(cases, None)
        p = [judgment.p_correct or -1 for judgment in judgments]
        best = p.index(max(p))
        answers = [candidate.get("answer") for candidate in body["candidates"]]
        return {
            "strategy": body["strategy"],
            "answer": answers[best],
            "chosen": best,
            "votes": [{"answer": answers[best] or "?", "weight": 1.0, "candidates": [best]}],
            "tied": False,
            "judgments": judgments,
            "not_judged": p.count(-1),
        }

    @app.post("/v1/rerank")
    async def rerank(request: Request) -> Any:
        body = await request.json()
        cases = [{"id": str(n), "question": body["query"], "trace": text} for n, text in enumerate(body["documents"])]
        scores = [(judgment.p_correct, place) for place, judgment in enumerate(await judged(cases, None))]
        best = sorted(scores, reverse=True)[: body.get("top_n")]
        return {"results": [{"index": place, "relevance_score": score} for score, place in best]}

    jobs: dict[str, Any] = {}

    @app.post("/jobs")
    async def submit(request: Request) -> Response:
        body = await request.json()
        name = f"job-{len(jobs)}"
        jobs[name] = {"asked": 0, "judgments": await judged(body["cases"], body.get("seed"))}
        return JSONResponse(state(name), 202)

    def state(name: str) -> dict[str, Any]:
        job = jobs[name]
        job["asked"] += 1
        status = job.get("cancelled") or ("done" if job["asked"] > 2 else "running")
        total = len(job["judgments"])
        return {"id": name, "status": status, "total": total, "done": total if status == "done" else 0, "failed": 0}

    @app.get("/jobs")
    async def all_jobs() -> Any:
        return {"jobs": [state(name) for name in jobs]}

    @app.get("/jobs/{name}")
    async def one_job(name: str) -> Any:
        if name not in jobs:
            return JSONResponse({"detail": "no such job"}, 404)
        return state(name)

    @app.get("/jobs/{name}/results")
    async def results(name: str) -> Response:
        return Response("".join(f"{judgment.model_dump_json()}\n" for judgment in jobs[name]["judgments"]))

    @app.delete("/jobs/{name}")
    async def cancel(name: str) -> Any:
        jobs[name]["cancelled"] = "cancelled"
        return state(name)

    return app


if __name__ == "__main__":
    uvicorn.run(service_app(), port=0, log_level="info")
