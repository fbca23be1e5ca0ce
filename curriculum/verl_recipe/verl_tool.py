"""The judge's search as a tool of verl-tool's server, for runs with verl-tool's own agent loop in place of ours.

verl-tool finds its tools as files of its own package: two lines in `verl_tool/servers/tools/medverify_search.py` make it known.

    from .base import register_tool
    from curriculum.verl_recipe.verl_tool import MedverifySearch; register_tool(MedverifySearch)

    MEDVERIFY_SEARCH_URL=http://HOST:8081 python -m verl_tool.servers.serve --tool_type medverify_search

It asks the retrieval server's own `/get_observation`: parser, query check and rendering are those of the judge's episode. Where
no other tool is needed, name that server as `tool_server_url` and do without this.

Written after verl-tool 980962b (`servers/tools/base.py`, `servers/tool_server.py`): a tool is made with `num_workers`, is asked
whether an action is its own, is awaited for observations, and forgets a trajectory when verl-tool's finish tool says so.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from retrieval.clients import LoopClient
from retrieval.passage import RetrievalError, UnavailableError
from retrieval.tries import NoMoreTriesError, Patience, Vain, described, first_answer
from verifier.parse import Tag, parse

URL = "MEDVERIFY_SEARCH_URL"

_MOST_BYTES = 64 * 2**20


class MedverifySearch:
    """Answers `<search>` with an `<information>` block, and ends a trajectory at its `<answer>`."""

    tool_type = "medverify_search"

    def __init__(
        self, num_workers: int = 1, *, url: str | None = None, timeout_s: float = 60.0, retries: int = 5
    ) -> None:
        """Nothing is asked yet.

        Args:
            num_workers: verl-tool's; not used, because nothing blocks.
            url: of `medverify retrieve serve`; else MEDVERIFY_SEARCH_URL.
            timeout_s: for the searches of a request, tries and waits included.
            retries: tries after the first.

        Raises:
            ValueError: there is no address, or what is given is none.
        """
        address = url or os.environ.get(URL)
        if not address:
            raise ValueError(f"set {URL} to the address of `medverify retrieve serve`")
        self._client = LoopClient(address.rstrip("/"))
        self._address = address
        self._timeout_s, self._retries = timeout_s, retries
        self.env_cache: dict[str, Any] = {}  # read by verl-tool's finish tool; a search leaves nothing behind

    def get_usage_inst(self) -> str:
        return f"Look up medical literature: {Tag.SEARCH.opening}a short query{Tag.SEARCH.closing}."

    def parse_action(self, action: str) -> tuple[str, bool]:
        """What the last complete search or answer of an action holds, and whether there is one."""
        acts = [block for block in parse(action).blocks if block.tag in (Tag.SEARCH, Tag.ANSWER)]
        return (acts[-1].content.strip(), True) if acts else ("", False)

    def get_action_priority(self, action: str, extra_field: Mapping[str, Any]) -> int:
        return 100 if self.parse_action(action)[1] else -1

    def has_env(self, trajectory_id: str) -> bool:
        return trajectory_id in self.env_cache

    def get_env_cache_keys(self) -> list[str]:
        return list(self.env_cache)

    def delete_env(self, trajectory_id: str) -> None:
        self.env_cache.pop(trajectory_id, None)

    async def aget_observations(
        self, trajectory_ids: Sequence[str], actions: Sequence[str], extra_fields: Sequence[Mapping[str, Any]]
    ) -> tuple[list[str | dict[str, Any]], list[bool], list[bool]]:
        """Observations, whether each trajectory is over, and whether each action could be carried out.

        Raises:
            RetrievalError: no answer. verl-tool then ends these trajectories with an error: an outage is never shown to the
                policy as an absence of evidence, but verl-tool has no way to leave such a rollout out of its group.
        """
        body = {
            "trajectory_ids": list(trajectory_ids),
            "actions": list(actions),
            "extra_fields": [{} for _ in extra_fields],  # of other tools, and perhaps large
            "finish": [bool(fields.get("finish")) for fields in extra_fields],
        }
        seen = await self._ask(body)
        return seen["observations"], seen["dones"], seen["valids"]

    async def aclose(self) -> None:
        """Close the connections; verl-tool leaves that to the end of its process."""
        await self._client.aclose()

    async def _ask(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        vain: list[Vain] = []
        began = monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await first_answer(
                    self._client.here(),
                    "POST",
                    "/get_observation",
                    most=_MOST_BYTES,
                    ends=began + self._timeout_s,
                    patience=Patience(self._retries),
                    vain=vain,
                    body=lambda _: body,
                )
        except (NoMoreTriesError, TimeoutError) as error:
            last = f"; the last try: {described(vain[-1])}" if vain else ""
            raise UnavailableError(f"{self._address}: no answer in {monotonic() - began:.0f} s{last}") from error
        if reply.status != 200:
            raise RetrievalError(f"{self._address}: {reply.described()}")
        try:
            seen: Mapping[str, Any] = reply.json()
            lengths = {len(seen[name]) for name in ("observations", "dones", "valids")}
        except (ValueError, KeyError, TypeError) as error:
            raise RetrievalError(f"{self._address}: the answer cannot be read: {error!r:.200}") from error
        if lengths != {len(body["actions"])}:
            raise RetrievalError(f"{self._address}: {len(body['actions'])} actions were answered with {lengths}")
        return seen
