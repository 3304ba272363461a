from __future__ import annotations
from typing import Any
class Learner:
    def __init__(self, spec: Any, reach: Any) -> None:
        self.k = spec.floor_us; self.c = spec.ceiling_us
    @property
    def lateness(self) -> int: return self.k
    def update(self, clock: Any, tasks: Any) -> None:
        for t in tasks:
            self.k = min(self.c, max(self.k, t.most, 0 if clock is None or t.low is None else clock - t.low))
    def to_json(self) -> Any: return self.k
    def restore(self, s: Any) -> None: self.k = s
