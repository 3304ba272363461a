from __future__ import annotations
from dataclasses import dataclass
from braided.durations import parse_duration
@dataclass(frozen=True)
class Lateness:
    margin: float = 0.5
    recall: float | None = None
    floor: str = "10 seconds"
    memory: str = "5 minutes"
    ceiling: str = "1 hour"
    measure: str = "arrival"
    @property
    def floor_us(self) -> int: return parse_duration(self.floor, "floor")
    @property
    def ceiling_us(self) -> int: return parse_duration(self.ceiling, "ceiling")
