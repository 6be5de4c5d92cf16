"""A real browser for the tests: Chromium and its driver, those installed or Debian's, unpacked into the cache.

`python tests/browser.py` gets what is missing; it needs apt-get and dpkg-deb but no rights, and installs nothing in the
system. Without either, tests that need a browser are skipped, or fail where PICOJOULE_REQUIRE_BROWSER is 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "picojoule" / "chromium"
REQUIRED = os.environ.get("PICOJOULE_REQUIRE_BROWSER") == "1"
PACKAGES = ("chromium", "chromium-driver")
OFFLINE = "http://127.0.0.1:9"
"""A proxy that nobody serves."""


class NoBrowser(Exception):
    """Why there is none."""


@dataclass(frozen=True)
class Browser:
    program: Path
    driver: Path
    environment: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def opened(self, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[webdriver.Chrome]:
        """A window without a screen and without a network, that writes down what it asks for and complains of."""
        options = webdriver.ChromeOptions()
        options.binary_location = str(self.program)
        arguments = ["--headless=new", f"--proxy-server={OFFLINE}", "--disable-dev-shm-usage", "--hide-scrollbars"]
        arguments += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
        arguments += ["--no-sandbox"]  # neither root nor a container has one, and the pages are our own
        for argument in arguments:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = self._started(options)
        try:
            driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
            )
            driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia",
                {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
            )
            yield driver
        finally:
            driver.quit()

    def _started(self, options: webdriver.ChromeOptions) -> webdriver.Chrome:
        """A busy machine may be too slow for the driver's patience, once or twice."""
        for attempts_left in (2, 1, 0):
            service = Service(str(self.driver), env={**os.environ, **self.environment})
            try:
                return webdriver.Chrome(options=options, service=service)
            except WebDriverException:
                if not attempts_left:
                    raise
        raise AssertionError("unreachable")


def find() -> Browser:
    """The one on the path, or else the one in the cache."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if program and driver:
        return Browser(Path(program), Path(driver))
    unpacked = Browser(CACHE / "usr/lib/chromium/chromium", CACHE / "usr/bin/chromedriver", _libraries())
    if unpacked.program.is_file() and unpacked.driver.is_file():
        return unpacked
    raise NoBrowser("neither chromium and chromedriver on the path nor `python tests/browser.py` run with success")


def obtain() -> Browser:
    """Debian's packages, and those that they need and the system lacks, unpacked into the cache."""
    try:
        return find()
    except NoBrowser:
        pass
    missing = [tool for tool in ("apt-get", "apt-cache", "dpkg-deb") if not shutil.which(tool)]
    if missing:
        raise NoBrowser(f"no chromium on the path, and without {', '.join(missing)} it cannot be had")
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent, prefix="chromium-") as scratch:
        folder, debs, root = Path(scratch), Path(scratch, "debs"), Path(scratch, "root")
        for part in (debs, root, folder / "lists/partial", folder / "archives/partial"):
            part.mkdir(parents=True)
        settings = {
            "Dir::State::lists": folder / "lists",
            "Dir::Cache::archives": folder / "archives",  # what the system has at hand already would not be listed
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "Debug::NoLocking": "1",
            "APT::Sandbox::User": "root",
            "Acquire::http::Timeout": "30",
            "Acquire::Retries": "5",
        }
        apt = ["apt-get", "-qq", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]
        _run([*apt, "update"], folder)
        plan = _run([*apt, "--simulate", "install", "--no-install-recommends", *PACKAGES], folder)
        _run([*apt, "download", *re.findall(r"^Inst (\S+)", plan, flags=re.MULTILINE)], debs)
        for package in sorted(debs.glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), str(root)], folder)
        shutil.rmtree(CACHE, ignore_errors=True)
        root.rename(CACHE)
    return find()


def _libraries() -> dict[str, str]:
    found = [*CACHE.glob("usr/lib/*-linux-gnu*/**/lib*.so*"), *CACHE.glob("lib/*-linux-gnu*/**/lib*.so*")]
    folders = sorted({path.parent for path in found})  # some keep their own in a folder below
    known = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": ":".join([*map(str, folders), *([known] if known else [])])}


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise NoBrowser(f"{command[0]} failed: {last}")
    return done.stdout


if __name__ == "__main__":
    try:
        print(f"browser: {obtain().program}", file=sys.stderr)
    except (NoBrowser, OSError, subprocess.SubprocessError) as fault:
        print(f"no browser, so its tests will be skipped: {fault}", file=sys.stderr)
        sys.exit(1 if REQUIRED else 0)
