"""How routes read JSON: a key that is there twice is refused, for nobody can know which of its values was meant."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from configs.strict_json import RepeatedKeyError, parse_unique


class RepeatedKeyInBodyError(HTTPException):
    """422; an `HTTPException`, for FastAPI lets nothing else out of the reading of a body."""

    def __init__(self, error: RepeatedKeyError) -> None:
        super().__init__(422, str(error))
        self.key = error.key


class _StrictRequest(Request):
    async def json(self) -> Any:
        try:
            return parse_unique(await self.body())
        except RepeatedKeyError as error:
            raise RepeatedKeyInBodyError(error) from error


class StrictRoute(APIRoute):
    """A route whose body has no key twice. Of every router: `APIRouter(route_class=StrictRoute)`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strictly
