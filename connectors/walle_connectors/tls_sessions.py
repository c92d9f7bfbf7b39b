"""TLS connections that resume the session of an earlier connection (RFC 8446, section 2.2).

kafka-python makes a context per connection and offers no session. So each of a client's
connections, and each reconnect, costs a full handshake with certificates of both sides. A
``TlsSessions`` takes the place of its ``ssl_context`` and wraps its sockets. All clients of a
process with the same files then share one context and the last session of each broker.

A session is kept at the first reply, since TLS 1.3 sends tickets after the handshake, and again
when the socket closes. A broker that does not know the session makes a full handshake. After a
failed handshake the next one is full. Apache Kafka knows a session only in the network thread
where it began. With the default of three threads a third of the connections resume, with
``num.network.threads=1`` of the listener all of them.

A resumed handshake shows no certificates: they were checked when the session began. A certificate
that has been replaced must not live on in a session. So a change of a file makes a new context
without sessions.
"""

import ssl
from functools import lru_cache
from pathlib import Path
from socket import socket
from threading import Lock
from typing import Any, Final

from walle_connectors.tls_contexts import client_context

_KEPT: Final = 32  # sets of files; a process has one or two

type _Peer = tuple[str, Any]  # the checked host name, and the address


class _Generation:
    # a context and its sessions, which no other context can use

    def __init__(self, owner: "TlsSessions", context: ssl.SSLContext) -> None:
        self.owner = owner
        self.context = context
        self.last: dict[_Peer, ssl.SSLSession] = {}


class _Socket(ssl.SSLSocket):
    # the attributes are set after the standard library has made the socket
    generation: _Generation | None = None
    peer: _Peer = ("", None)
    is_new = True  # nothing has been received

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            if self.generation is not None:
                # the session may be the cause
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
        # before the first reply this may be the old session that we offered
        session = None if self.is_new else self.session
        if self.generation is not None and session is not None and session.id:
            self.generation.last[self.peer] = session


class TlsSessions:
    """The ``ssl_context`` of kafka-python's clients, with shared sessions. Thread-safe."""

    def __init__(self, ca: Path | None, cert: Path | None, key: Path | None) -> None:
        """Keep the paths of the files, as for ``client_context``, without reading them."""
        self._ca, self._cert, self._key = ca, cert, key
        self._lock = Lock()
        self._stamp: tuple[Any, ...] = ()
        self._generation: _Generation | None = None
        self.full_count = 0
        """Number of full handshakes that succeeded."""
        self.resumed_count = 0
        """Number of handshakes that resumed a session."""

    def wrap_socket(
        self, sock: socket, *, server_hostname: str, do_handshake_on_connect: bool = True
    ) -> ssl.SSLSocket:
        """Return a TLS socket that offers the peer's last session; reads changed files.

        Takes over a connected socket, and closes it on an error. With ``do_handshake_on_connect``
        the handshake happens here; it blocks on a blocking socket.

        Raises:
            OSError: A file cannot be read or used, or the handshake failed. The next call reads
                unusable files again.
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
        """Drop all sessions, so that the next handshakes are full."""
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
    """Return the process's sessions for a set of files, the same object for each call."""
    return TlsSessions(ca, cert, key)
