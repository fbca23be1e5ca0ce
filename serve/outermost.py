"""What is around a whole application: added middleware would not see the answers to errors that nobody foresaw."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Scope

from serve.exposition import UNKNOWN


class WrappedApp(FastAPI):
    """An application all of whose answers pass through `around`."""

    def __init__(self, around: Callable[[ASGIApp], ASGIApp], **fields: Any) -> None:
        super().__init__(**fields)
        self._around = around

    def build_middleware_stack(self) -> ASGIApp:
        return self._around(super().build_middleware_stack())


def route_of(scope: Scope) -> str:
    """The path of the route that answered, with its parameters' names: few of them, and nothing that a caller made up."""
    if (route := scope.get("route")) is not None:
        return str(route.path)
    return scope["path"] if "endpoint" in scope and not scope.get("path_params") else UNKNOWN
