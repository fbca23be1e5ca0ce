"""Where an index is built: a hidden sibling of the target, renamed to the target when everything in it is finished.

    .NAME.lock       held while the work folder is set up, and while its index is put in place
    .NAME.building   the work folder: `index` is what becomes the target, `plan.json` says what is being built,
                     `done` has a marker for each finished shard, `ranks/R.lock` is held by who encodes for rank R, and
                     `ranks/R.ticket` lets rank R begin, once
    .NAME.published  there from the moment at which the finished index is to be put in place until all else of this is gone
    .NAME.retired    the index that is being replaced, where the file system cannot exchange two folders at once

Locks are the kernel's: they go with the process that held them, however it ends. Once `.NAME.published` is there, whoever
holds the lock next does what its writer did not get to.
"""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from configs.durable import sync, write_whole
from retrieval.manifest import MANIFEST_FILE, Manifest
from retrieval.passage import BuildError, BusyError, IndexCorruptError, IndexMismatchError
from retrieval.shards import VECTORS_FOLDER

_RANKS_FOLDER = "ranks"
_AT_WORKING_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


class Published(BaseModel):
    """What is known of an index that is finished: nothing is left to do but to put it in place and to tidy up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    how: dict[str, Any]  # it was made; see `plan.Plan`
    digest: str
    inode: int  # of its folder: the same before and after it is renamed


class Workspace:
    """The paths of one build, and how the result gets to its place."""

    def __init__(self, target: Path) -> None:
        self.target = target.resolve()
        self.folder = self.target.with_name(f".{self.target.name}.building")
        self.index = self.folder / "index"
        self.done = self.folder / "done"
        self.plan = self.folder / "plan.json"
        self._record = self.target.with_name(f".{self.target.name}.published")
        self._retired = self.target.with_name(f".{self.target.name}.retired")
        self._lock_file = self.target.with_name(f".{self.target.name}.lock")

    @contextmanager
    def locked(self, *, wait: bool = False) -> Iterator[None]:
        """Be the only one to set up the work folder or to put it in place.

        The empty lock file stays behind: if it were removed, two builds could each hold a lock on a file of that name.

        Raises:
            BusyError: another process holds the lock, and not `wait`.
        """
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with _held(self._lock_file, wait) as held:
            if not held:
                raise self._busy()
            if record := self._published():
                self._settle(record)
            yield

    @contextmanager
    def rank(self, rank: int) -> Iterator[None]:
        """Be the only one that encodes for this rank.

        Raises:
            BusyError: another process does already.
        """
        with _held(self.folder / _RANKS_FOLDER / f"{rank}.lock", wait=False) as held:
            if not held:
                raise self._busy()
            yield

    def admit(self, ranks: Iterable[int]) -> None:
        """Let other ranks begin, once each: rank 0 has seen that the plan is that of its passages. Hold the lock."""
        for rank in ranks:
            self._ticket(rank).touch()

    def revoke(self) -> None:
        """Let no other rank begin before rank 0 has looked at its passages again. Hold the lock."""
        for path in self.folder.glob(f"{_RANKS_FOLDER}/*.ticket"):
            path.unlink()

    def admitted(self, rank: int) -> bool:
        """Whether `rank` may begin, which uses up its ticket. Hold the lock.

        It needs none while rank 0 is at work. Without either, the plan may be that of passages which have changed since.
        """
        try:
            self._ticket(rank).unlink()
        except FileNotFoundError:
            with _held(self.folder / _RANKS_FOLDER / "0.lock", wait=False) as held:
                return not held
        return True

    def _ticket(self, rank: int) -> Path:
        return self.folder / _RANKS_FOLDER / f"{rank}.ticket"

    def check_target(self, overwrite: bool) -> None:
        """Refuse a target that is something else, or that is there already and not to be replaced.

        Raises:
            BuildError: either of the two.
        """
        if not self.target.exists() or (self.target.is_dir() and not any(self.target.iterdir())):
            return
        if not overwrite:
            raise BuildError(f"{self.target} exists; choose another folder, or ask for it to be overwritten")
        if not (self.target / MANIFEST_FILE).is_file():
            raise BuildError(f"{self.target} is not an index (it has no {MANIFEST_FILE}) and will not be overwritten")

    def clear(self) -> None:
        """Start from an empty work folder; hold the lock.

        Raises:
            BusyError: a rank of the unfinished build is still at work.
        """
        for path in self.folder.glob(f"{_RANKS_FOLDER}/*.lock"):
            with _held(path, wait=False) as held:
                if not held:
                    raise self._busy()
        self.forget()
        self.remove()
        for path in (self.index / VECTORS_FOLDER, self.done, self.folder / _RANKS_FOLDER):
            path.mkdir(parents=True)

    def remove(self) -> None:
        """Remove the work folder and a replaced index; hold the lock."""
        for folder in (self.folder, self._retired):
            if folder.exists():
                shutil.rmtree(folder)

    def publish(self, manifest: Manifest, how: dict[str, Any]) -> None:
        """Flush, and put the finished index in place of the target; hold the lock.

        Killed before the record is written, it has done nothing; killed later, it is brought to its end by whoever holds the
        lock next. Readers that have the old index open keep its files.
        """
        for stray in self.index.glob(f"{VECTORS_FOLDER}/.*"):
            stray.unlink()  # a shard that was being written when its process was killed
        for path in [*self.index.rglob("*"), self.index]:
            sync(path)
        record = Published(how=how, digest=manifest.digest, inode=self.index.stat().st_ino)
        write_whole(self._record, record.model_dump_json())
        self._settle(record)
        self.forget()

    def settled(self) -> tuple[Manifest, dict[str, Any]] | None:
        """The manifest of an index that a killed build has left in place, and how it was made; hold the lock."""
        record = self._published()
        try:
            manifest = Manifest.load(self.target) if record else None
            if manifest:
                manifest.check_files(self.target, verify=False)
        except (IndexCorruptError, IndexMismatchError):
            manifest = None  # the target has been changed or damaged since
        if record is None or manifest is None or manifest.digest != record.digest:
            self.forget()
            return None
        return manifest, record.how

    def forget(self) -> None:
        """The index is in place, and its builder has been told; hold the lock."""
        self._record.unlink(missing_ok=True)

    def _published(self) -> Published | None:
        try:
            return Published.model_validate_json(self._record.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _settle(self, record: Published) -> None:
        """Put a finished index in place unless it is, and remove everything but the record; may be killed and done again."""
        if self.index.exists() and self.index.stat().st_ino == record.inode:
            if not (self.target.exists() and _exchanged(self.index, self.target)):
                if self.target.exists():
                    self.target.rename(self._retired)  # readers find no index until the next line is done
                self.index.rename(self.target)
            sync(self.target.parent)
        self.remove()

    def _busy(self) -> BusyError:
        return BusyError(f"{self.target}: another process is building this index; wait for it to finish")


@contextmanager
def _held(path: Path, wait: bool) -> Iterator[bool]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def _exchanged(one: Path, other: Path) -> bool:
    """Let two folders change names at once; whether this system and file system can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if rename(_AT_WORKING_FOLDER, os.fsencode(one), _AT_WORKING_FOLDER, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))
