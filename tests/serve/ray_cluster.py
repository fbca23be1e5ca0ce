"""Runs a Serve config file on a small Ray cluster in this process and its children, until standard input ends.

A process of its own, so that the tests' interpreter stays free of Ray. Prints the address once the applications are ready. A line
on standard input is the name of an application to take away, as an operator does; what is under way is finished first.
"""

import json
import os
import socket
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import ray
import yaml
from ray import serve
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema


def build(app: ServeApplicationSchema, changes: dict[str, object]) -> serve.Application:
    """What the file's `import_path` builds from its arguments."""
    module, _, name = app.import_path.partition(":")
    builder = getattr(import_module(module), name)
    return builder(builder.__annotations__["args"].model_validate({**app.args, **changes}))


def main(file: Path, changes: dict[str, dict[str, object]]) -> None:
    """Args:
    changes: for applications by name, arguments that differ from the file's; PORT in them is the port.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    schema = ServeDeploySchema.model_validate(yaml.safe_load(file.read_text().replace("8000", str(port))))
    changes = json.loads(json.dumps(changes).replace("PORT", str(port)))
    # Names of sockets are limited to about a hundred characters, hence a short folder.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        ray.init(
            num_cpus=2, object_store_memory=120 * 2**20, include_dashboard=False, log_to_driver=False, _temp_dir=folder
        )
        try:
            timeout_s = schema.http_options.request_timeout_s
            serve.start(http_options={"host": "127.0.0.1", "port": port, "request_timeout_s": timeout_s})
            # All at once, as Ray Serve deploys a file: none waits for another.
            serve.run_many(
                [
                    serve.RunTarget(build(app, changes.get(app.name, {})), name=app.name, route_prefix=app.route_prefix)
                    for app in schema.applications
                ]
            )
            print(f"http://127.0.0.1:{port}", flush=True)
            for line in sys.stdin:
                serve.delete(line.strip())
                print("gone", flush=True)
        finally:
            serve.shutdown()
            ray.shutdown()


if __name__ == "__main__":
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS"] = "1"  # as docs/deployment.md says
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
