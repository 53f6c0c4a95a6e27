"""The HTTP server around the application: stalled clients, connections, and the end."""

import asyncio
import ipaddress
import json
import socket
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from carbon.errors import UserError
from carbon.serve.errors import error_body

_PROBE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """Limits on the connections of a server.

    Attributes:
        most_connections: open at a time; more are refused with 503.
        timeout_seconds: for a client to send the head of a request, to send its body, and to read
            any part of the answer.
        grace_seconds: from SIGTERM or Ctrl-C until open connections are closed.
    """

    most_connections: int = 512
    timeout_seconds: float = 60
    grace_seconds: float = 30


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address, which does not listen yet.

    Raises:
        UserError: the host is unknown, or the port is taken or not allowed.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise UserError(f"--host {host}: is not an address of this machine") from None
    bound = socket.socket(family, kind)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
        bound.listen(0)  # fails if another server listens there
    except OSError as error:
        bound.close()
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"--port {port}: {reason} ({host}); give another port, or 0") from None
    return bound


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make_server(app: FastAPI, limits: ConnectionLimits) -> uvicorn.Server:
    """Return a server, whose `run` takes the sockets of `bind`."""

    class Connection(BoundedConnection):
        bounds = limits

    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level="error",
        timeout_graceful_shutdown=int(limits.grace_seconds) + 2,  # if a connection stays open
    )
    return uvicorn.Server(config)


class BoundedConnection(H11Protocol):
    """A connection that ends if its client stalls, and survives one that only stops sending.

    uvicorn itself limits neither the time for a request and its answer nor the number of
    connections, and treats a client that has closed its sending side as gone.
    """

    bounds = ConnectionLimits()

    def connection_made(self, transport: Any) -> None:
        """Take a connection, or refuse one too many."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._phase: object = None
        transport.set_write_buffer_limits(0)  # reports each write that the client does not take
        if len(self.connections) > self.bounds.most_connections:
            most = self.bounds.most_connections
            self._refuse(503, f"{most} connections are open (--most-connections); try later")
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep a connection whose client awaits an answer and only stops sending."""
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete:
            return False
        cycle.keep_alive = False
        self._probe()
        return True

    def on_response_complete(self) -> None:
        """Wait for the next request; the keep-alive limit of uvicorn applies until it begins."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Start the time that a client has to read."""
        super().pause_writing()
        self._start(self._check_writing, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop the time that a client has to read."""
        super().resume_writing()
        self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End an idle connection now, and any other when it is answered or the grace is over."""
        super().shutdown()
        self.loop.call_later(self.bounds.grace_seconds, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP with an error in OpenAI's format."""
        self._refuse(400, f"{msg} Send HTTP/1.1 with a head of less than 64 KiB")

    def _watch(self) -> None:
        """Limit the time for the head of a request, and then for its body."""
        state = self.conn.their_state
        is_head = state is h11.IDLE and self.timeout_keep_alive_task is None
        phase = state if is_head or state is h11.SEND_BODY else None
        if phase is not self._phase:
            self._stop()
            self._phase = phase
            if phase is not None:
                self._start(self._refuse_late)

    def _start(self, act: Any, *arguments: Any) -> None:
        self._stop()
        self._timer = self.loop.call_later(self.bounds.timeout_seconds, act, *arguments)

    def _stop(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def _refuse_late(self) -> None:
        seconds = f"{self.bounds.timeout_seconds:g} s (--timeout)"
        self._refuse(408, f"the request did not arrive within {seconds}; send it again")

    def _check_writing(self, num_bytes: int) -> None:
        """Cut the connection if its client has read nothing since the last check."""
        left = self.transport.get_write_buffer_size()
        if left >= num_bytes:
            self.transport.abort()
        else:
            self._start(self._check_writing, left)

    def _probe(self) -> None:
        """Write to a client that has stopped sending, so that its system reports if it is gone.

        Until something is written, a closed connection looks like a half-closed one. Clients skip
        `100 Continue` (RFC 9110, section 15.2).
        """
        cycle = self.cycle
        if self.transport.is_closing() or cycle.response_started:
            return
        if cycle.scope["http_version"] == "1.1":
            proceed = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            self.transport.write(self.conn.send(proceed))
            self.loop.call_later(_PROBE_SECONDS, self._probe)

    def _refuse(self, status: int, message: str) -> None:
        """Answer without the application, and close the connection."""
        body = json.dumps(error_body(status, message)).encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(head.encode() + body)
        self.transport.close()


_REASONS = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}
