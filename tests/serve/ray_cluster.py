"""Runs a Serve config file on a small Ray cluster in this process and its children, until standard input ends.

A process of its own, so that the tests' interpreter stays free of Ray. Prints the address once the application is ready.
"""

import json
import os
import socket
import sys
import tempfile
from pathlib import Path

import ray
import yaml
from ray import serve
from ray.serve.schema import ServeDeploySchema

from medverify.cluster import RetrievalArguments, retrieval


def main(file: Path, changes: dict[str, object]) -> None:
    """Args:
    changes: arguments of the application that differ from the file's.
    """
    schema = ServeDeploySchema.model_validate(yaml.safe_load(file.read_text()))
    (app,) = schema.applications
    assert app.import_path == "medverify.cluster:retrieval"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Names of sockets are limited to about a hundred characters, hence a short folder.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        ray.init(
            num_cpus=2, object_store_memory=120 * 2**20, include_dashboard=False, log_to_driver=False, _temp_dir=folder
        )
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": port, "request_timeout_s": 60})
            arguments = RetrievalArguments.model_validate({**app.args, **changes})
            serve.run(retrieval(arguments), name=app.name, route_prefix=app.route_prefix)
            print(f"http://127.0.0.1:{port}", flush=True)
            sys.stdin.read()
        finally:
            serve.shutdown()
            ray.shutdown()


if __name__ == "__main__":
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
