"""The read-only server of the page: static files, and the history as server-sent events."""

from __future__ import annotations

import threading
from typing import Any

from braided.ui.dashboard_page import ICON, PAGE, POLICY, SCRIPTS, STYLE, TYPES, asset
from braided.ui.guarded_server import GuardedHandler, GuardedServer
from braided.ui.history import History

# Each reader uses a thread; a browser has one reader per tab.
MOST_READERS = 32
_ALIVE_EVERY = 15.0


class Server(GuardedServer):
    """Serves a history until it is closed; `url` is the address to open."""

    def __init__(self, history: History, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        self._history = history
        handler: Any = type(
            "Handler", (_Handler,), {"history": history, "readers": threading.BoundedSemaphore(MOST_READERS)}
        )
        super().__init__(handler, host=host, port=port, token=token)
        self.start()

    def close(self) -> None:
        """Stop serving, and disconnect all readers."""
        self._history.close()
        super().close()


class _Handler(GuardedHandler):
    history: History
    readers: threading.BoundedSemaphore
    always = {"Content-Security-Policy": POLICY, **GuardedHandler.always}  # noqa: RUF012

    def serve(self, path: str) -> None:
        """See `GuardedHandler`."""
        if path == "/events":
            self._send_events()
        elif (name := path.removeprefix("/") or PAGE) in (PAGE, ICON, STYLE, *SCRIPTS):
            self.answer(200, asset(name), {"Content-Type": TYPES[name[name.rindex(".") :]]})
        else:
            self.answer(404, b"there is no such page\n")

    def _send_events(self) -> None:
        """Send all kept events, and then new ones, until the reader disconnects or the server closes."""
        if not self.readers.acquire(blocking=False):
            self.answer(503, b"too many pages are open; close some\n")
            return
        try:
            self.close_connection = True
            self.send_response(200)
            self.send_headers({"Content-Type": "text/event-stream", "Connection": "close"})
            if self.command == "HEAD":
                return
            history = self.history
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
            self.readers.release()

    def _send(self, text: str) -> None:
        self.wfile.write(text.encode())


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
