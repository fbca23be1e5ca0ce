"""`.ci/audit.py` with programs in place of pip-audit that end as the real one does."""

import subprocess
import sys
from pathlib import Path

import pytest

CLEAN = '{"dependencies": [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "editable"}], "fixes": []}'
NOBODY = '{"dependencies": [{"name": "a", "skip_reason": "not found"}], "fixes": []}'
FOUND = (
    '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"], "aliases": []}]},'
    ' {"name": "b", "version": "3", "vulns": []}], "fixes": []}'
)
UNREACHABLE = "Traceback (most recent call last):\nrequests.exceptions.ConnectionError: no route"


@pytest.mark.parametrize(
    ("report", "error", "status", "expected", "says"),
    [
        (CLEAN, "", 0, 0, "0 of 1 packages have known vulnerabilities"),
        (FOUND, "Found 1 known vulnerability", 1, 1, "a 1: PYSEC-1; fixed in 2"),
        (None, UNREACHABLE, 1, 0, "NOT DONE, the advisory service cannot be reached"),
        (NOBODY, "", 0, 0, "NOT DONE, the service knows none of 1 packages"),
        (None, "usage: pip-audit: unknown option", 2, 1, "unknown option"),
        (None, "", 1, 1, "pip-audit failed with status 1"),
    ],
    ids=["clean", "vulnerable", "unreachable", "not known there", "wrong usage", "silent"],
)
def test_only_what_was_found_fails_a_build(
    repository: Path, tmp_path: Path, report: str | None, error: str, status: int, expected: int, says: str
) -> None:
    program = tmp_path / "pip_audit.py"
    program.write_text(
        "import sys, pathlib\n"
        f"report = {report!r}\n"
        "if report: pathlib.Path(sys.argv[sys.argv.index('--output') + 1]).write_text(report)\n"
        f"print({error!r}, file=sys.stderr)\n"
        f"sys.exit({status})\n"
    )
    command = [sys.executable, str(repository / ".ci" / "audit.py"), sys.executable, str(program)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == expected
    assert says in ended.stdout + ended.stderr
