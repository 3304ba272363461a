"""The server of the page: static files, and the history as server-sent events. It only reads.

A request must name a host that is meant, so that a page of somebody else's cannot read it through a name that it has
pointed at this machine. Bound to anything but loopback, the server wants a token: in the address once, then in a
cookie.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import threading
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from braided.errors import OptionError
from braided.ui.dashboard_page import ICON, PAGE, POLICY, SCRIPTS, STYLE, TYPES, asset
from braided.ui.history import History

# Each holds a thread; browsers open one a tab.
MOST_READERS = 32
_ALIVE_EVERY = 15.0
_COOKIE = "braided_token"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_LEAST_TOKEN = 16


class Server:
    """Serves a history until it is closed; `url` is what to open."""

    def __init__(self, history: History, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        local = is_loopback(host)
        if token is not None and (len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable()):
            raise OptionError(f"token: write {_LEAST_TOKEN} or more plain characters, or leave it out to get one made")
        token = token or (None if local else secrets.token_urlsafe(24))
        try:
            self._http = _Http((host, port), history, token, local)
        except (OSError, OverflowError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise OptionError(
                f"host={host!r}, port={port!r}: {what}; choose others, port=0 takes a free one"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        shown = socket.gethostname() if host in ("", "0.0.0.0", "::") else shown
        self.port = self._http.server_port
        self.url = f"http://{shown}:{self.port}/" + (f"?token={token}" if token is not None else "")
        self._history = history
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.2,), daemon=True, name="braided-ui")
        self._thread.start()

    def close(self) -> None:
        """Stop serving; whoever reads is let go."""
        self._history.close()
        self._http.shutdown()
        self._http.server_close()
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

    def __init__(self, address: tuple[str, int], history: History, token: str | None, local: bool) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.history = history
        self.token = token
        self.hosts = _LOOPBACK | {address[0]} if local else None
        self.readers = threading.BoundedSemaphore(MOST_READERS)
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no error; there is nobody to tell of another one."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    server_version, sys_version = "braided", ""
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the query."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if not self._host_is_meant():
            self._answer(403, b"this address is not served under that name\n")
        elif self.server.token is not None and not self._has_cookie():
            given = parse_qs(address.query).get("token", [""])[0]
            if self._is_token(given):
                cookie = f"{_COOKIE}={given}; HttpOnly; SameSite=Strict; Path=/"
                self._answer(303, b"", {"Location": "/", "Set-Cookie": cookie})
            else:
                self._answer(401, b"open the address with its token, as braided printed it\n")
        elif address.path == "/events":
            self._send_events()
        elif (name := address.path.removeprefix("/") or PAGE) in (PAGE, ICON, STYLE, *SCRIPTS):
            self._answer(200, asset(name), {"Content-Type": TYPES[name[name.rindex(".") :]]})
        else:
            self._answer(404, b"there is no such page\n")

    do_HEAD = do_GET

    def _host_is_meant(self) -> bool:
        if self.server.hosts is None:
            return True
        return urlsplit(f"//{self.headers.get('Host', '')}").hostname in self.server.hosts

    def _has_cookie(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            return False
        return found is not None and self._is_token(found.value)

    def _is_token(self, given: str) -> bool:
        assert self.server.token is not None
        return hmac.compare_digest(given.encode(), self.server.token.encode())

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        told = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(content)), **(headers or {})}
        self._send_headers(told)
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_headers(self, told: dict[str, str]) -> None:
        always = {
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in (always | told).items():
            self.send_header(name, value)
        self.end_headers()

    def _send_events(self) -> None:
        """Send what there is, and then what comes, until the reader is gone or the server closes."""
        if not self.server.readers.acquire(blocking=False):
            self._answer(503, b"too many pages are open; close some\n")
            return
        try:
            self.close_connection = True
            self.send_response(200)
            self._send_headers({"Content-Type": "text/event-stream", "Connection": "close"})
            if self.command == "HEAD":
                return
            history = self.server.history
            mark, _, number = self.headers.get("Last-Event-ID", "").partition("-")
            last = _number(number) if mark == history.mark else 0
            self._send(f"event: hello\ndata: {history.mark}\n\n")
            while not history.closed:
                fresh = history.since(last)
                for event in fresh:
                    self._send(f"id: {history.mark}-{event.number}\ndata: {event.text}\n\n")
                if fresh:
                    last = fresh[-1].number
                else:
                    self._send(": alive\n\n")
                history.wait(last, _ALIVE_EVERY)
        finally:
            self.server.readers.release()

    def _send(self, text: str) -> None:
        self.wfile.write(text.encode())


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
