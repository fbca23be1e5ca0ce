"""`/retrieve` and `/get_observation`, in the retrieval service and, passed through, in the judge's."""

from fastapi import APIRouter

from serve.retrieval_schemas import Observations, Observe, Retrieve, Retrieved
from serve.searching import SEARCHING, Searching
from serve.strict_bodies import StrictRoute


def router(searching: Searching) -> APIRouter:
    """`/retrieve` and `/get_observation`."""
    routes = APIRouter(route_class=StrictRoute)
    for path, work, takes, gives in (
        ("/retrieve", searching.retrieve, Retrieve, Retrieved),
        ("/get_observation", searching.get_observation, Observe, Observations),
    ):
        routes.add_api_route(
            path,
            work,
            methods=["POST"],
            openapi_extra={
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": takes.model_json_schema()}},
                }
            },
            responses={200: {"model": gives}, **SEARCHING},
        )
    return routes
