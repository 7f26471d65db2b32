"""Let a long-running command end when it is asked to: at a moment of its own choosing, not in the middle of a step."""

from __future__ import annotations

import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """While it is entered, the first signal only sets `is_asked` and makes `wake_fd` readable; a second Ctrl-C ends.

    For the main thread.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self.wake_fd, self._signal_fd = os.pipe()
        os.set_blocking(self._signal_fd, False)
        self._old: dict[int, object] = {}
        self._old_fd = -1

    def __enter__(self) -> Stop:
        # The kernel's signal itself makes the pipe readable. Were it our handler, a signal in the instant before a wait
        # begins would be heard only after that wait.
        self._old_fd = signal.set_wakeup_fd(self._signal_fd, warn_on_full_buffer=False)
        for number in _ASKING:
            # what the parent chose to ignore (nohup) stays ignored
            if signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._old_fd)
        os.close(self.wake_fd)
        os.close(self._signal_fd)

    def wait(self, timeout_s: float) -> bool:
        """Whether it was asked to stop within that time."""
        if not self.is_asked:
            poll = select.poll()
            poll.register(self.wake_fd, select.POLLIN)
            poll.poll(max(0.0, timeout_s) * 1000)
        return self.is_asked

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.is_asked = True
