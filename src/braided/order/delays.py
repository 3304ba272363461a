from __future__ import annotations
from typing import Any
import numpy as np
class Delays:
    def __init__(self, ceiling: int) -> None:
        self.most, self.top, self.low = 0, None, None
    def add(self, times: Any) -> None:
        if not len(times): return
        r = np.maximum.accumulate(times if self.top is None else np.maximum(times, self.top))
        self.most = max(self.most, int((r-times).max())); self.top = int(r[-1]); m=int(times.min())
        self.low = m if self.low is None else min(m, self.low)
    def to_json(self) -> Any: return [self.most, self.top, self.low]
    @classmethod
    def from_json(cls, d: Any) -> Delays:
        x = cls(0); x.most, x.top, x.low = d; return x
