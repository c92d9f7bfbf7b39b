"""TLS connections that go on with the session of the connection before (RFC 8446, section 2.2).

kafka-python makes a context per connection and offers no session, so each of a client's
connections, and each reconnect, costs a whole handshake with certificates both ways. Handed
in as its ``ssl_context``, a ``TlsSessions`` wraps the sockets in its place: all clients of
this process with the same files share one context and the last session of each broker.

A session is taken with the first reply, since in TLS 1.3 tickets come after the handshake,
and once more when the socket closes. A broker that does not know it answers with a whole
handshake; one that ends the handshake gets a whole one the next time. Apache Kafka knows a
session at the network thread that it began at: with its default of three a connection in
three resumes, with ``num.network.threads=1`` of the listener every one.

A resumed handshake shows no certificates: who they are was checked when the session began. So a
certificate that the files no longer have must not live on in a session: when one of the files
changes, the context is made anew, without any.
"""

import ssl
from functools import lru_cache
from pathlib import Path
from socket import socket
from threading import Lock
from typing import Any, Final

from walle_connectors.tls_contexts import client_context

_KEPT: Final = 32  # sets of files; a process has one or two

type _Peer = tuple[str, Any]  # the name that was checked, and the address


class _Generation:
    # what belongs to one context: sessions cannot go to another

    def __init__(self, owner: "TlsSessions", context: ssl.SSLContext) -> None:
        self.owner = owner
        self.context = context
        self.last: dict[_Peer, ssl.SSLSession] = {}


class _Socket(ssl.SSLSocket):
    # what is set after the standard library has made it
    generation: _Generation | None = None
    peer: _Peer = ("", None)
    is_new = True  # nothing was received yet

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            if self.generation is not None:
                # perhaps it was the session
                self.generation.last.pop(self.peer, None)
            raise
        if self.generation is not None:
            self.generation.owner.count(is_resumed=bool(self.session_reused))

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        data = super().recv(buflen, flags)
        if self.is_new:
            self.is_new = False
            self._keep()
        return data

    def shutdown(self, how: int) -> None:
        self._keep()
        super().shutdown(how)

    def close(self) -> None:
        self._keep()
        super().close()

    def _keep(self) -> None:
        # before the first reply it may be the one that was offered, and be of no use
        session = None if self.is_new else self.session
        if self.generation is not None and session is not None and session.id:
            self.generation.last[self.peer] = session


class TlsSessions:
    """What kafka-python takes as ``ssl_context``. Thread-safe."""

    def __init__(self, ca: Path | None, cert: Path | None, key: Path | None) -> None:
        """Read nothing yet; the files are those of ``client_context``."""
        self._ca, self._cert, self._key = ca, cert, key
        self._lock = Lock()
        self._stamp: tuple[Any, ...] = ()
        self._generation: _Generation | None = None
        self.full_count = 0
        """Whole handshakes that succeeded."""
        self.resumed_count = 0
        """Handshakes that went on with a session."""

    def wrap_socket(
        self, sock: socket, *, server_hostname: str, do_handshake_on_connect: bool = True
    ) -> ssl.SSLSocket:
        """Return a TLS socket that offers the peer's last session; reads changed files.

        Takes a connected socket, and closes it where this raises. ``do_handshake_on_connect`` does
        the handshake here, which blocks on a blocking socket.

        Raises:
            OSError: A file cannot be read or used, or the handshake failed; nothing is kept
                of files that cannot be used, the next call reads them again.
        """
        try:
            generation = self._current()
            peer: _Peer = (server_hostname, sock.getpeername())
        except OSError:
            sock.close()
            raise
        wrapped = generation.context.wrap_socket(
            sock,
            server_hostname=server_hostname,
            do_handshake_on_connect=False,
            session=generation.last.get(peer),
        )
        if isinstance(wrapped, _Socket):  # always: the context makes them
            wrapped.generation, wrapped.peer = generation, peer
        if do_handshake_on_connect:
            try:
                wrapped.do_handshake()
            except OSError:
                wrapped.close()
                raise
        return wrapped

    def forget(self) -> None:
        """Drop all sessions: the next handshakes are whole."""
        with self._lock:
            self._generation = None

    def count(self, *, is_resumed: bool) -> None:
        """Count a handshake; called by the sockets."""
        with self._lock:
            if is_resumed:
                self.resumed_count += 1
            else:
                self.full_count += 1

    def _current(self) -> _Generation:
        with self._lock:
            stamp = tuple(_stamp(each) for each in (self._ca, self._cert, self._key) if each)
            if self._generation is None or stamp != self._stamp:
                self._generation = _Generation(self, self._context())
                self._stamp = stamp
            return self._generation

    def _context(self) -> ssl.SSLContext:
        context = client_context(self._ca, self._cert, self._key)
        context.sslsocket_class = _Socket
        return context


def _stamp(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=_KEPT)
def shared_sessions(ca: Path | None, cert: Path | None, key: Path | None) -> TlsSessions:
    """Return the sessions of this process for a set of files, always the same."""
    return TlsSessions(ca, cert, key)
