"""moto's S3 server, in which of two who create an object one wins, as S3 promises.

moto looks whether the object is there and stores it later, in a thread for each request. On a busy machine both of two
get through: with 20 ms between the two steps, every pair does.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import Any

from moto.s3.responses import S3Response
from moto.server import main

_put = S3Response._key_response_put
_one_at_a_time = Lock()


def _put_alone(self: S3Response, query: dict[str, Any], key_name: str) -> Any:
    with _one_at_a_time:
        return _put(self, query, key_name)


if __name__ == "__main__":
    S3Response._key_response_put = _put_alone
    main(sys.argv[1:])
