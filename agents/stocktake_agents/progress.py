"""A sign of life on stderr: a bar at a terminal, a line now and then elsewhere."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sized

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

import stocktake_jax as st
from stocktake_agents.loop import Seat

REDRAW_SECONDS = 0.25
LINE_SECONDS = 10.0


def dollars(spent: float | None, unpriced: int) -> str:
    """What was spent, in words; answers of unknown cost are counted and never free."""
    known = [] if spent is None else [f"${spent:.2f}"]
    return " and ".join([*known, *([f"{unpriced} answers unpriced"] if unpriced else [])])


class Heartbeat:
    """Shows how far a run is, whether or not anything happens.

    Attributes:
        spending: gives the dollars spent and the answers of unknown cost, for a run that costs money.
    """

    def __init__(self, label: str, quiet: bool = False) -> None:
        self._quiet = quiet
        self._label = label
        self._console = Console(stderr=True, quiet=quiet)
        self._started = time.monotonic()
        self._warnings: Counter[str] = Counter()
        self.spending: Callable[[], tuple[float | None, int]] | None = None

    def warn(self, kind: str, sentence: str) -> None:
        """Prints the first warning of a kind; further ones are counted in the sign of life."""
        self._warnings[kind] += 1
        if self._warnings[kind] == 1:
            self.say(f"Tried again ({kind}; more of the kind are only counted): {sentence}")

    def say(self, sentence: str) -> None:
        """Prints a sentence above the bar."""
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    async def beat(self, planned: int, ended: Sized, seats: Mapping[object, Seat], stop: threading.Event) -> None:
        """Runs until cancelled.

        Args:
            planned: episodes to play in this run.
            ended: those that are over.
            seats: those that are running.
            stop: set by Ctrl-C.
        """
        weeks = planned * st.WorldParams().horizon
        line_column = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
        columns = (TextColumn("{task.fields[label]}", markup=False), BarColumn(bar_width=12), line_column)
        live = self._console.is_terminal and not self._quiet
        with Progress(*columns, console=self._console, transient=True, disable=not live) as bar:
            task = bar.add_task("", total=weeks, label=self._label)
            next_line = time.monotonic() + LINE_SECONDS
            announced = False
            while True:
                if stop.is_set() and not announced:
                    self.say("Stopping after the answers under way; press Ctrl-C again to abort at once.")
                    announced = True
                done = len(ended) * weeks / planned + sum(seat.week for seat in seats.values())
                line = self._line(planned, len(ended), seats, done / weeks)
                bar.update(task, completed=done, description=line)
                if not live and time.monotonic() >= next_line:
                    self.say(f"{self._label}: {line}")
                    next_line = time.monotonic() + LINE_SECONDS
                await asyncio.sleep(REDRAW_SECONDS)

    def _line(self, planned: int, ended: int, seats: Mapping[object, Seat], share: float) -> str:
        now = time.monotonic()
        waits = [now - seat.asked_at for seat in seats.values() if seat.asked_at is not None]
        line = f"{ended}/{planned} done, {len(seats)} running, {planned - ended - len(seats)} waiting"
        line += f", {(now - self._started) * (1 / share - 1):.0f} s left" if share > 0 else ""
        line += f", oldest call {max(waits):.0f} s" if waits else ""
        if self.spending is not None:
            line += ", " + dollars(*self.spending())
        repeated = ", ".join(f"{count} {kind}" for kind, count in self._warnings.items())
        return line + (f", tried again: {repeated}" if repeated else "")
