"""Run pip-audit, and tell what it found from whether it could look at all.

pip-audit ends with 1 for a known vulnerability and for an advisory service that cannot be reached. Only the former may fail a
build; the two are told apart by its report, which it writes when it has looked, and by the error it ends with otherwise.

Usage: audit.py PIP_AUDIT [ARGUMENT…]
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

# What the HTTP client underneath calls a service that is not there, or does not answer as itself.
_UNREACHABLE = (
    "ConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "ProxyError",
    "SSLError",
    "ServiceError",
    "HTTPError",
    "Could not connect",
)


def main(command: list[str]) -> int:
    """Returns 0 if nothing is known against what is installed, or nobody could be asked; else 1."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = ["--format", "json", "--output", str(report), "--progress-spinner", "off", "--timeout", "10"]
        ended = subprocess.run([*command, *options], stderr=subprocess.PIPE, text=True, check=False)
        if report.is_file() and (written := report.read_text(encoding="utf-8")):
            return told(json.loads(written)["dependencies"])
    if any(name in ended.stderr for name in _UNREACHABLE):
        last = ended.stderr.strip().splitlines()[-1]
        print(f"audit: NOT DONE, the advisory service cannot be reached: {last}", file=sys.stderr)
        return 0
    print(ended.stderr, f"audit: pip-audit failed with status {ended.returncode}", sep="\n", file=sys.stderr)
    return 1


def told(dependencies: list[dict]) -> int:
    """Print what the report says; 1 if a vulnerability is among it."""
    audited = [found for found in dependencies if "skip_reason" not in found]
    vulnerable = [found for found in audited if found["vulns"]]
    for found in vulnerable:
        for vulnerability in found["vulns"]:
            fixes = ", ".join(vulnerability["fix_versions"]) or "no release yet"
            print(f"{found['name']} {found['version']}: {vulnerability['id']}; fixed in {fixes}")
    if not audited:
        print(f"audit: NOT DONE, the service knows none of {len(dependencies)} packages", file=sys.stderr)
    else:
        print(f"audit: {len(vulnerable)} of {len(audited)} packages have known vulnerabilities", file=sys.stderr)
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
