"""Pages in a real browser: nothing of a name runs, and they fit light, dark and narrow windows."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import pytest

for _name in ("jwt", "starlette", "uvicorn"):
    pytest.importorskip(_name, reason="the extra `deploy` is not installed")

BROWSER = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium"),
]

# a service whose visitors are signed in: a headless browser has no form to fill in
SERVER = """
import sys, uvicorn, socket
from pathlib import Path
from starlette.responses import HTMLResponse
from starlette.routing import Route
from tests.unit.deploy.page import showing
store = showing.Clocked(showing.SqliteStore(Path(sys.argv[1])), 1_900_000_020_000)
count = int(sys.argv[2])
if count:
    showing.lived(store, why="<script>document.title = 'owned'</script>")
commands = showing.ReleaseCommands(store, '<img src=x onerror="document.title=\\'owned\\'">')
for number in range(1, count):
    if number % 20 == 1:
        showing.published(store, *(f"v{each}" for each in range(22)), task=f"shop/t{number}")
        task = f"shop/t{number}"
    commands.create(showing.definition(f"r{number}", f"v{1 + number % 20}", task), "x" * 300, supersede=True)

async def signed_in(headers, client):
    return showing.Operator("ann", "approver")

async def sending(request):
    # a page that sends a form by itself, as an operator's click would, or as another site might
    given = dict(request.query_params)
    fields = "".join(f'<input name="{name}" value="{value}">' for name, value in given.items())
    form = f'<form method="post" action="{given.pop("to")}">{fields}</form>'
    script = "<script>document.forms[0].submit()</script>"
    return HTMLResponse(form + script, headers={"referrer-policy": "same-origin"})

app = showing.application(store, showing.prove if sys.argv[3:] else signed_in)
app.router.routes.append(Route("/sending", sending))
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])
"""


@contextmanager
def shown(folder, count, *asks):
    """Serve; with a further word it asks who looks."""
    command = [sys.executable, "-c", SERVER, str(folder / "r.db"), str(count), *asks]
    root = Path(__file__).parents[3]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


def browse(folder, url, *options):
    command = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000"),
        *(*options, url),
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("count", [0, 1, 200])
def test_pages_run_nothing_of_others_and_break_no_rule(tmp_path, count):
    with shown(tmp_path, count) as address:
        for path in ("/", *(["/releases/r", "/releases/r/stop?revision=7"] if count else [])):
            seen = browse(tmp_path, f"{address}{path}", "--dump-dom", "--enable-logging=stderr")
            assert "owned</title>" not in seen.stdout
            assert "Content Security Policy" not in seen.stderr
            assert "walle releases" in seen.stdout


@pytest.mark.parametrize("scheme", [1, 0], ids=["light", "dark"])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_pages_are_drawn_in_light_and_dark(tmp_path, count, scheme):
    pillow = pytest.importorskip("PIL.Image", reason="the extra `images` is not installed")
    picture = tmp_path / "page.png"
    options = (
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--screenshot={picture}",
        "--window-size=1280,1600",
    )
    with shown(tmp_path, count) as address:
        browse(tmp_path, f"{address}/{'releases/r' if count else ''}", *options)
    with pillow.open(picture) as image:
        brightness = image.convert("L").getpixel((1270, 1590))
        assert (brightness > 200) is (scheme == 1)
        assert len(image.convert("RGB").getcolors(2**24)) > 20  # something is drawn


def test_a_browser_signs_in_and_stops_a_release_from_our_pages(tmp_path):
    with shown(tmp_path, 1, "asks") as address:
        assert "Sign in" in browse(tmp_path, f"{address}/", "--dump-dom").stdout
        seen = browse(tmp_path, f"{address}/sending?to=/sign-in&token=good", "--dump-dom")
        assert "<h1>Releases" in seen.stdout
        assert "ann</bdi> (approver)" in seen.stdout
    stop = "to=/releases/r/stop&action=pause&why=look&revision=7"
    folder = tmp_path / "other"
    folder.mkdir()
    with shown(folder, 1) as address:
        seen = browse(tmp_path, f"{address}/sending?{stop}", "--dump-dom")
        assert "paused</span>" in seen.stdout
        again = browse(tmp_path, f"{address}/sending?{stop}", "--dump-dom")
        assert "Nothing was changed" in again.stdout


def test_a_browser_on_another_sites_page_changes_nothing(tmp_path):
    with shown(tmp_path, 1) as address:
        target = f"{address}/releases/r/stop&action=rollback&why=x&revision=7"
        other = address.replace("127.0.0.1", "localhost")
        seen = browse(tmp_path, f"{other}/sending?to={target}", "--dump-dom")
        assert "another site" in seen.stdout
        assert "full</span>" in browse(tmp_path, f"{address}/releases/r", "--dump-dom").stdout
