"""`POST /v1/rerank`: traces in the order of the judge's belief in them."""

import uuid
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request

from configs.settings import ServeSettings
from serve.callers import Caller, caller
from serve.client_left import unless_client_leaves
from serve.distinct import judge_distinct
from serve.errors import JUDGING, ServiceError
from serve.judging import JudgingService
from serve.rerank_schemas import Ranked, Ranking, RerankRequest, Text, Tokens
from serve.strict_bodies import StrictRoute
from verifier.types import Judgment


def router(service: JudgingService, settings: ServeSettings, model: str) -> APIRouter:
    """The three paths under which clients look for it; `model` is what answers call the judge."""
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/v1/rerank", responses=JUDGING, response_model_exclude_none=True)
    @routes.post("/v2/rerank", responses=JUDGING, response_model_exclude_none=True)
    @routes.post("/rerank", responses=JUDGING, response_model_exclude_none=True)
    async def rerank(
        request: Request, body: Annotated[RerankRequest, Body()], asking: Annotated[Caller, Depends(caller)]
    ) -> Ranking:
        """Order traces of one question, best first.

        The score is the judge's probability that a trace is free of errors. This form has no word for "not judged": if that
        befalls a single trace, the answer is 503 with Retry-After, never a number.
        """
        cases = body.cases
        judgments = await unless_client_leaves(
            request, judge_distinct(service, cases, caller=asking, deadline_s=body.deadline_s)
        )
        failed = Counter(str(judgment.status) for judgment in judgments if judgment.p_correct is None)
        if failed:
            raise _not_judged(failed, len(cases), settings.retry_after_s)
        scores = [judgment.p_correct for judgment in judgments if judgment.p_correct is not None]
        order = sorted(range(len(cases)), key=lambda place: (-scores[place], judgments[place].case_digest, place))
        return Ranking(
            id=str(uuid.uuid4()),
            model=model,
            results=[
                Ranked(
                    index=place,
                    relevance_score=scores[place],
                    document=Text(text=body.documents[place].text) if body.return_documents else None,
                )
                for place in order[: body.top_n]
            ],
            usage=Tokens(
                total_tokens=sum({judgment.case_digest: _tokens(judgment) for judgment in judgments}.values())
            ),
        )

    return routes


def _tokens(judgment: Judgment) -> int:
    usage = judgment.usage
    return usage.prompt_tokens + usage.policy_tokens + usage.environment_tokens


def _not_judged(failed: Counter[str], total: int, retry_after_s: int) -> ServiceError:
    reasons = ", ".join(f"{status}: {count}" for status, count in sorted(failed.items()))
    return ServiceError(
        503,
        "not-judged",
        "Not every document was judged",
        f"{failed.total()} of {total} documents were not judged ({reasons}), and a ranking without them would be a guess",
        {"Retry-After": str(retry_after_s)},
    )
