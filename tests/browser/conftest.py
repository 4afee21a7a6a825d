"""A JupyterLab of the tests' own on a free local port, and a Chromium to use it with."""

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect, sync_playwright

from paperlib.paths import ROOT

WIDTH, HEIGHT = 1280, 900
# No first steps, no news, no search for updates; all cells are there, also those outside the window.
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/extensionmanager-extension/plugin": {"enabled": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none", "autoStartDefaultKernel": True},
}
# What JupyterLab itself says in the console, whatever is open.
NOISE = ("favicon",)
CELLS = {
    "partition": "widgets.partition_explorer()",
    "playground": "widgets.method_playground()",
    "results": 'widgets.result_browser(find="gc_fed T5 smoke")',
    "card": 'widgets.method_card("gc_fed")',
    "live": "widgets.live_run(TINY)",
    "answer": "6 * 7",
}
START = """from paperlib import Experiment
from paperlib.teaching import widgets

# Its rounds take long enough that it is still running when a test has looked at it and presses Pause.
TINY = Experiment(
    dataset="digits", model="mlp", width=0.25, clients=10, sampled=3, rounds=80, local_epochs=20, batch_size=50
)
"ready"
"""
KERNEL_READY = """async () => {
    const session = window.jupyterapp.shell.currentWidget.sessionContext;
    await session.ready;
    await session.session.kernel.info;
}"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        with open(__file__) as lock:  # workers side by side would disturb each other's installation
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = chromium(playwright.chromium.executable_path)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def chromium(bundled: str) -> str:
    """A Chromium: the one on the PATH, else Debian's, else Playwright's own (``bundled``); installed where needed."""
    install = [
        ["apt-get", "install", "-y", "chromium"],
        ["apt-get", "update"],  # a fresh machine has no lists of packages
        ["apt-get", "install", "-y", "chromium"],
        ["sudo", "-n", "apt-get", "install", "-y", "chromium"],
        [sys.executable, "-m", "playwright", "install", "chromium"],
    ]
    for command in [[], *install]:
        if command and shutil.which(command[0]):
            subprocess.run(command, capture_output=True, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
        if found := shutil.which("chromium"):
            return found
        if Path(bundled).exists():
            return bundled
    pytest.fail("there is no Chromium to test with: install it with `apt-get install chromium`", pytrace=False)


@dataclass
class Lab:
    """address: of a notebook, by its path. runs: the kernels' store."""

    server: str
    token: str
    root: Path
    folder: Path

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def address(self, notebook: Path) -> str:
        return f"{self.server}/lab/tree/{notebook.relative_to(self.root).as_posix()}?token={self.token}&reset"


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    for name, values in SETTINGS.items():
        path = folder / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The folder that holds both the checkout and the test's notebooks, so that links from one to the other work.
    root = Path(os.path.commonpath([ROOT, folder]))
    made = Lab(f"http://127.0.0.1:{port}", secrets.token_hex(16), root, folder)
    places = {name: f"JUPYTER_{name.upper()}_DIR" for name in ("config", "data", "runtime")}
    places |= {name: f"JUPYTERLAB_{name.upper()}_DIR" for name in ("settings", "workspaces")}
    places |= {"ipython": "IPYTHONDIR", "runs": "PAPERLIB_RUNS"}
    env = os.environ | {variable: str(folder / name) for name, variable in places.items()}
    env |= {"PYTHONPATH": str(ROOT), "JUPYTER_TOKEN": made.token}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}",
        "--ContentsManager.allow_hidden=True", "--LabApp.extension_manager=readonly",
        f"--FileCheckpoints.checkpoint_dir={folder / 'checkpoints'}",  # not beside the checkout's notebooks
        "--LabApp.expose_app_in_browser=True", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        wait_for(lambda: answers(made), process, folder / "log")
        yield made
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def answers(lab: Lab) -> bool:
    try:
        with urllib.request.urlopen(f"{lab.server}/api/status?token={lab.token}", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < end, f"JupyterLab did not start:\n{log.read_text()}"
        time.sleep(0.1)


@dataclass
class Notebook:
    """A notebook that is open in the browser."""

    page: Page
    screenshots: Path
    errors: list[str] = field(default_factory=list)

    def cell(self, name: str) -> Locator:
        return self.page.locator(".jp-CodeCell").nth(1 + list(CELLS).index(name))

    def run(self, name: str) -> Locator:
        """Run a cell and wait for its explorer, or its output; returns that."""
        cell = self.cell(name)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        output = cell.locator(".explorer" if "widgets" in CELLS[name] else ".jp-OutputArea-output").first
        expect(output).to_be_visible(timeout=60_000)
        output.scroll_into_view_if_needed()
        return output

    def screenshot(self, name: str, part: Locator) -> None:
        """The window, from where a part begins, once nothing changes any more."""
        part.evaluate("part => part.scrollIntoView({block: 'start'})")
        self.page.mouse.move(0, 0)
        seen = b""
        while seen != (seen := self.page.screenshot()):
            self.page.wait_for_timeout(500)
        self.page.screenshot(path=self.screenshots / f"{name}.png")

    def listen(self) -> None:
        def heard(message: ConsoleMessage) -> None:
            told = f"{message.text} ({message.location.get('url', '')})"
            if message.type == "error" and not any(noise in told for noise in NOISE):
                self.errors.append(told)

        self.page.on("console", heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture(scope="session")
def notebook_of_all(lab: Lab, context: BrowserContext) -> Notebook:
    """One notebook, and one kernel, for all explorers: a cell for each."""
    shown = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in (START, *CELLS.values())],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    path = lab.folder / "explorers.ipynb"
    nbformat.write(shown, path)
    screenshots = Path(os.environ.get("PAPERLIB_SCREENSHOTS") or lab.folder / "screenshots")
    screenshots.mkdir(parents=True, exist_ok=True)
    opened = Notebook(context.new_page(), screenshots)
    opened.listen()
    opened.page.goto(lab.address(path))
    first = opened.page.locator(".jp-CodeCell").first
    expect(first).to_be_visible(timeout=60_000)
    opened.page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    opened.page.evaluate(KERNEL_READY)
    first.locator(".cm-content").click()
    opened.page.keyboard.press("Shift+Enter")
    expect(first.locator(".jp-OutputArea-output")).to_contain_text("ready", timeout=120_000)
    return opened


@pytest.fixture
def notebook(notebook_of_all: Notebook) -> Iterator[Notebook]:
    """The notebook; the test fails if the page reports an error meanwhile."""
    notebook_of_all.errors.clear()
    yield notebook_of_all
    assert notebook_of_all.errors == []
