"""A read-only HTTP server that checks who may read.

The host of a request must be a known name, so that a foreign page cannot read the server through a DNS name that points
to this machine. If the server is bound to another address than loopback, requests need a token: as a bearer token, or
once in the address and then in a cookie.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import threading
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from braided.errors import OptionError

_COOKIE = "braided_token"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_LEAST_TOKEN = 16


class GuardedServer:
    """Serves in its own thread until it is closed; `url` is the address to open, `token` is the token of requests."""

    path: ClassVar[str] = ""

    def __init__(self, handler: type[GuardedHandler], *, host: str, port: int, token: str | None) -> None:
        local = is_loopback(host)
        if token is not None and (len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable()):
            raise OptionError(
                f"token: write {_LEAST_TOKEN} or more printable ASCII characters, or omit it for a new one"
            )
        self.token = token or (None if local else secrets.token_urlsafe(24))
        try:
            self.http = _Http((host, port), handler, self.token, local)
        except (OSError, OverflowError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise OptionError(
                f"host={host!r}, port={port!r}: {what}; choose others, or port=0 for a free port"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        shown = socket.gethostname() if host in ("", "0.0.0.0", "::") else shown
        self.port = self.http.server_port
        self.address = f"http://{shown}:{self.port}/{self.path}"
        self.url = self.address + (f"?token={self.token}" if self.token is not None else "")
        self._thread = threading.Thread(target=self.http.serve_forever, args=(0.2,), daemon=True, name="braided-ui")

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving, also on connections that are kept open."""
        self.http.is_closed = True
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[GuardedHandler], token: str | None, local: bool) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.token = token
        self.is_closed = False
        self.hosts = _LOOPBACK | {address[0]} if local else None
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: a reader may disconnect at any time, and other errors cannot be reported to anyone."""


class GuardedHandler(BaseHTTPRequestHandler):
    """Checks a request, and answers it by `serve` if it is allowed."""

    server: _Http
    server_version, sys_version = "braided", ""
    protocol_version = "HTTP/1.1"
    timeout = 30
    always: ClassVar[dict[str, str]] = {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
    """The headers of every answer."""

    def serve(self, path: str) -> None:
        """Answer a request for a path."""
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal belongs to the query."""

    def do_GET(self) -> None:
        try:
            address = urlsplit(self.path)
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        except ValueError:
            self.answer(400, b"this is not a valid address\n")
            return
        if self.server.is_closed:
            self.close_connection = True
        elif self.server.hosts is not None and host not in self.server.hosts:
            self.answer(403, b"this host name is not served; use localhost\n")
        elif self.server.token is None or self._is_bearer() or self._has_cookie():
            self.serve(address.path)
        else:
            token = parse_qs(address.query).get("token", [""])[0]
            if self._is_token(token):
                cookie = f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
                self.answer(303, b"", {"Location": "/" + address.path.lstrip("/"), "Set-Cookie": cookie})
            else:
                self.answer(401, b"the token is missing or wrong; open the address that braided printed\n")

    do_HEAD = do_GET

    def _is_bearer(self) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._is_token(token.strip())

    def _has_cookie(self) -> bool:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _is_token(self, token: str) -> bool:
        assert self.server.token is not None
        return hmac.compare_digest(token.encode(), self.server.token.encode())

    def answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        """Send a complete answer."""
        self.send_response(status)
        own = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(content)), **(headers or {})}
        self.send_headers(own)
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_headers(self, own: dict[str, str]) -> None:
        """Send the headers of an answer."""
        for name, value in (self.always | own).items():
            self.send_header(name, value)
        self.end_headers()
