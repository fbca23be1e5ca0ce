"""Around every request of the judge's service: its name, its line in the log, its count, its span."""

import logging
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve import request_ids
from serve.exposition import Exposition
from serve.outermost import route_of
from serve.tracing import Tracing

logger = logging.getLogger(__name__)


class RequestLog:
    """ASGI middleware. What a request says stays out of the log, and so does its address: only its route is named."""

    def __init__(self, app: ASGIApp, metrics: Exposition, tracing: Tracing, *, lines: bool) -> None:
        """Args:
        app: what is called.
        metrics: told every answer.
        tracing: told every request.
        lines: write a line for every request.
        """
        self._app = app
        self._metrics = metrics
        self._tracing = tracing
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        arrived = perf_counter()
        headers = scope["headers"]
        name = request_ids.begin(next((value for key, value in headers if key == request_ids.HEADER), None))
        status = 499  # until there is an answer: the client left, or the server stopped

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (request_ids.HEADER, name.encode())]}
                self._metrics.answered(route_of(scope), status, perf_counter() - arrived)
            await send(message)

        try:
            with self._tracing.request(scope, name) as span:
                await self._app(scope, receive, named)
                span.answered(route_of(scope), status)
        finally:
            if self._lines:
                self._tell(scope, status, perf_counter() - arrived)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        route = route_of(scope)
        fields = {"method": scope["method"], "route": route, "status": status, "seconds": round(seconds, 6)}
        logger.info("%s %s %d in %.3f s", scope["method"], route, status, seconds, extra={"fields": fields})
