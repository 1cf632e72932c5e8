"""A real browser, Debian's chromium without a window: opens a page, and takes pictures of it.

.venv/bin/python tests/support/python/browser.py PAGE PICTURE [--width 1280] [--height 900] [--dark]
"""

from __future__ import annotations

import argparse
import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

CHECK = Path(__file__).with_name("page_check.js")


def missing() -> str:
    """Reason why there is no browser here; empty if there is one."""
    if not program():
        return "no browser is here: chromium is not installed"
    return "" if shutil.which("chromedriver") else "no browser is here: chromium-driver is not installed"


def program() -> str | None:
    """The browser's program."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


@contextmanager
def started() -> Iterator[Chrome]:
    """A browser while the block runs."""
    options = ChromeOptions()
    options.binary_location = program() or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    # Root has no sandbox, nor have many containers; the pages are our own.
    options.add_argument("--no-sandbox")
    driver = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """A browser for the tests of a file. They have the marker `browser` (tiers.py)."""
    if reason := missing():
        pytest.skip(reason)
    with started() as driver:
        yield driver


def show(
    driver: Chrome, page: Path, width: int, height: int = 900, dark: bool = False, paper: bool = False
) -> None:
    """Opens the page in a window of that many CSS pixels; a narrow one is a phone's."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    medium = {"media": "print" if paper else "screen", "features": [scheme]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", medium)
    driver.get(page.resolve().as_uri())


def picture(driver: Chrome, whole: bool = False) -> bytes:
    """The window as PNG, or the whole page."""
    wanted = {"format": "png", "captureBeyondViewport": whole}
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", wanted)
    return base64.b64decode(taken["data"])


def main() -> None:
    """Takes one picture."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("page", type=Path)
    p.add_argument("picture", type=Path)
    p.add_argument("--width", type=int, default=1280)
    p.add_argument("--height", type=int, default=0, help="0: the whole page")
    p.add_argument("--dark", action="store_true")
    args = p.parse_args()
    with started() as driver:
        show(driver, args.page, args.width, args.height or 900, args.dark)
        args.picture.write_bytes(picture(driver, whole=not args.height))


if __name__ == "__main__":
    main()
