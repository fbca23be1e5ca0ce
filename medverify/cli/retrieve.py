"""`medverify retrieve serve`: an index over HTTP."""

from typing import Annotated

import typer

from medverify import __version__
from medverify.cli.common import ConfigOption, SetOption, err, mended_by_user, quiet_libraries, settings_from, waiting

HELP = """Serve an index to trainers and judges.

    medverify index build starter -o idx          make an index
    medverify retrieve serve --index idx          serve it
    curl localhost:8081/retrieve -d '{"queries": ["warfarin"], "topk": 3, "return_scores": true}'
    medverify index bench --url http://localhost:8081      see what it bears
    medverify verify … --set retrieval.index=http://localhost:8081     judge with it
"""


def serve(
    index: Annotated[str | None, typer.Option(help="`starter`, or the folder of an index.")] = None,
    profile: Annotated[str | None, typer.Option(help="How to search: dense, or what retrieval.profile lists.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.")] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Serve an index: POST /retrieve and /get_observation, GET /health, /ready, /info, /metrics; described at /docs.

    Searches that arrive while a batch is in work are the next batch. What cannot be done soon is answered with 503 and
    Retry-After. SIGTERM finishes what is under way, then stops.
    """
    flags = {"retrieval.index": index, "retrieval.profile": profile, "retrieve.host": host, "retrieve.port": port}
    chosen = [f"{name}={value}" for name, value in flags.items() if value is not None]
    settings = settings_from(config, [*(overrides or []), *chosen]).settings
    with mended_by_user():
        from serve.listen import listen
        from serve.retrieval import create_retrieval_app
        from serve.retrieval_schemas import RetrievalInfo

        with waiting("starting") as status:
            quiet_libraries()
            from medverify.assemble import load_local

            retriever = load_local(settings, status.update)
        info = RetrievalInfo.of(retriever, __version__)
        err.print(f"index {info.digest[:12]}: {info.rows} passages, profile {info.profile}", highlight=False)
        listen(
            create_retrieval_app(retriever, settings.retrieve, info),
            host=settings.retrieve.host,
            port=settings.retrieve.port,
            access_log=False,  # thousands of lines a second; /metrics counts them
            backlog=4096,
            timeout_keep_alive=75,  # longer than a trainer's step between two searches often takes
            drain_s=settings.retrieve.drain_s,
            proxy_headers=False,
        )
