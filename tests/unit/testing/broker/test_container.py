"""The image of the broker and the removal of containers, with a Docker that only records."""

import os
import socket
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from walle_stream.errors import BrokerMissingError
from walle_stream.testing.broker import container as module
from walle_stream.testing.broker.container import OWN_IMAGE, PUBLIC_IMAGE


class NoImageError(Exception):
    pass


class Images:
    def __init__(self, present, remote=()):
        self.present, self.remote, self.pulled = set(present), set(remote), []

    def get(self, name):
        if name not in self.present:
            raise NoImageError

    def pull(self, name):
        self.pulled.append(name)
        if name not in self.remote:
            raise NoImageError


def image_of(images, wanted=""):
    return module._image_of(SimpleNamespace(images=images), NoImageError, wanted)


def test_our_image_comes_before_the_public_one():
    assert image_of(Images([OWN_IMAGE, PUBLIC_IMAGE])) == OWN_IMAGE
    assert image_of(Images([PUBLIC_IMAGE])) == PUBLIC_IMAGE


def test_what_is_not_there_is_fetched():
    images = Images([], [PUBLIC_IMAGE])
    assert image_of(images) == PUBLIC_IMAGE
    assert images.pulled == [PUBLIC_IMAGE]


def test_the_image_asked_for_is_the_only_one():
    with pytest.raises(BrokerMissingError, match="no image mine:1"):
        image_of(Images([OWN_IMAGE]), "mine:1")


def test_containers_of_processes_that_are_gone_are_removed():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = socket.gethostname()
    owners = [f"{here}:{gone.pid}", f"{here}:{os.getpid()}", f"elsewhere:{gone.pid}", "nonsense"]
    owners.append(owners[0])
    removed = []

    def remove(owner, force):
        removed.append((owner, force))
        if len(removed) == 1:
            raise LookupError("another test process is removing it")

    containers = [
        SimpleNamespace(labels={module.OWNER_LABEL: owner}, remove=partial(remove, owner))
        for owner in owners
    ]
    listing = SimpleNamespace(list=lambda **_: containers)
    module._remove_orphans(SimpleNamespace(containers=listing), LookupError)
    assert removed == [(owners[0], True)] * 2
