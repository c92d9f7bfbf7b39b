"""Populations: files of device profiles, as JSON objects with the keys that devices send."""

from pathlib import Path
from typing import Final

import msgspec

from walle_deploy.model.owners import device_problem
from walle_deploy.model.profile import DeviceProfile
from walle_stream.errors import SpecFileError

_LINE_MAX: Final = 65_536
_decoder: Final = msgspec.json.Decoder(DeviceProfile)


def read_population(path: Path) -> list[DeviceProfile]:
    """Return the profiles of a file of JSON Lines, one per device; blocks.

    Raises:
        SpecFileError: The file cannot be read or has no device, a line is not a profile, or a
            device occurs twice; the message names the file and the lines.
    """
    by_device: dict[str, tuple[int, DeviceProfile]] = {}
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(_LINE_MAX), b""), 1):
                if line.strip():
                    profile = _profile(path, number, line)
                    first, _ = by_device.setdefault(profile.device, (number, profile))
                    if first != number:
                        raise SpecFileError(
                            f"{path}:{number}:1: device {profile.device!r} is in line {first} "
                            "already: each device may occur once",
                            *(str(path), number, 1),
                        )
    except OSError as error:
        raise SpecFileError(
            f"{path}: cannot be read: {error.strerror or error}", str(path)
        ) from error
    if not by_device:
        raise SpecFileError(
            f"{path}: the file has no device: expected a profile per line, such as "
            '{"device": "d-17", "app": "shop"}',
            str(path),
        )
    return [profile for _, profile in by_device.values()]


def _profile(path: Path, number: int, line: bytes) -> DeviceProfile:
    try:
        profile = _decoder.decode(line)
        problem = device_problem(profile.device)
    except (msgspec.MsgspecError, ValueError) as error:
        problem = str(error)
    if problem:
        raise SpecFileError(
            f"{path}:{number}:1: not a profile of a device: {problem}", str(path), number, 1
        )
    return profile
