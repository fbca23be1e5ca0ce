"""What the tests of the verl recipe share: its shipped configuration around a tiny policy, a data set and a retrieval server."""

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from rote_policy import QUERY, cases, save_policy

from curriculum.verl_recipe.files import write_examples
from retrieval.remote import RemoteRetriever
from verifier.prompt import Prompt, load_prompt, render_information
from verifier.types import Case, EvidencePassage

CONFIGS = Path(__file__).parents[2] / "configs" / "verl"
PROMPT = "Check it.\n{question}\n{trace}\n"


def composed(name: str, *overrides: str) -> Any:
    """A shipped iteration, over verl's own configuration; for environments with verl."""
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(CONFIGS), version_base=None):
        return compose(name, list(overrides))


class SearchServer:
    """A retrieval server in a process of its own."""

    def __init__(self, repository: Path, python: str) -> None:
        command = [python, str(repository / "tests" / "serve" / "words_server.py")]
        environment = {**os.environ, "PYTHONPATH": str(repository)}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self._process.stderr
        line = next((line for line in self._process.stderr if "Uvicorn running on" in line), None)
        assert line, "the retrieval server did not start"
        self.url = line.split("running on ")[1].split()[0]

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=60)


@dataclass(frozen=True)
class Setting:
    """Files and addresses."""

    folder: Path
    url: str
    evidence: str  # the block that the policy is shown for its query
    cases: Sequence[Case]

    @property
    def policy(self) -> Path:
        return self.folder / "policy"

    @property
    def data(self) -> Path:
        return self.folder / "train.parquet"

    @property
    def prompt_file(self) -> Path:
        return self.folder / "prompt.txt"

    @property
    def prompt(self) -> Prompt:
        return load_prompt(str(self.prompt_file))

    def config(self, *overrides: str) -> Any:
        """The first iteration as it is shipped, but for paths and lengths."""
        return composed(
            "iteration-1",
            f"actor_rollout_ref.model.path={self.policy}",
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={self.folder / 'agent.yaml'}",
            f"data.train_files={self.data}",
            f"data.val_files={self.data}",
            "data.max_prompt_length=128",
            "data.max_response_length=512",
            "actor_rollout_ref.rollout.max_model_len=700",
            *overrides,
        )


async def made(folder: Path, url: str) -> Setting:
    """Teach the policy and write the data set."""
    (folder / "prompt.txt").write_text(PROMPT)
    (agent,) = yaml.safe_load((CONFIGS / "agent.yaml").read_text())
    agent |= {"prompt": str(folder / "prompt.txt"), "retrieval_url": url}
    (folder / "agent.yaml").write_text(yaml.safe_dump([agent]))
    retriever = RemoteRetriever.connect(url)
    hits = await retriever.search(QUERY, 3)
    await retriever.aclose()
    evidence = render_information(list(map(EvidencePassage.of, hits)))
    setting = Setting(folder, url, evidence, cases(8))
    save_policy(setting.policy, setting.prompt, evidence)
    labelled = [
        SimpleNamespace(case=case, label=number % 2, question_id=case.id, source="made-up", generator="nobody")
        for number, case in enumerate(setting.cases)
    ]
    write_examples(setting.data, labelled, setting.prompt)  # type: ignore[arg-type]
    return setting
