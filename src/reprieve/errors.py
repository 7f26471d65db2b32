"""Every error that reaches a user, with its code, exit code and hints.

    ReprieveError
    ├── Usage              2    the command line is wrong
    │   └── BadRef         2    no such, or more than one such, entry on the timeline
    ├── Misconfigured      3    configuration or environment is wrong
    ├── Conflict           4    the world is not as the agent left it; nothing was touched
    ├── Refused            5    not reversible, not allowed, or approval missing
    │   └── Repeated       5    the same effect was done before and was not undone
    ├── Partial            6    partly done; the report says what
    ├── StoreFailed       10    reading or writing the store failed (disk full, I/O error, permission)
    ├── StoreUnavailable  11    the store cannot be reached now; retry
    ├── StoreLocked       12    another process holds the store
    ├── StoreCorrupted    13    stored data does not match its hash
    └── Interrupted      130    a person or signal stopped it

`details` is a list of lines that belong to the fact (paths, candidates); `hints` say what to do next;
`data` is merged into the JSON error object.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ReprieveError(Exception):
    """Something that a user must hear of. Raise a subclass."""

    code = "bug"
    exit_code = 70

    def __init__(
        self,
        message: str,
        *,
        hints: Sequence[str] = (),
        details: Sequence[str] = (),
        data: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hints = tuple(hints)
        self.details = tuple(details)
        self.data = dict(data or {})


class Usage(ReprieveError):
    """The caller asked in a way that makes no sense; correct the call."""

    code = "usage"
    exit_code = 2


class BadRef(Usage):
    """A REF names nothing, or more than one thing."""

    code = "bad_ref"


class Misconfigured(ReprieveError):
    """A configuration file, environment variable or workspace root is wrong."""

    code = "config"
    exit_code = 3


class Conflict(ReprieveError):
    """Files are not as they were left; nothing was touched. Choose with --on-conflict."""

    code = "conflict"
    exit_code = 4


class Refused(ReprieveError):
    """It can't be taken back, isn't allowed, or a person has not approved it."""

    code = "refused"
    exit_code = 5


class Repeated(Refused):
    """The same effect was done before and was not undone: accept its answer, or ask a person. `effect` is its id."""

    code = "repeated"

    def __init__(self, message: str, *, effect: str, state: str, hints: Sequence[str] = ()) -> None:
        super().__init__(message, hints=hints, data={"effect": effect, "state": state})
        self.effect = effect


class Partial(ReprieveError):
    """Some of it was done; the report names what and what not."""

    code = "partial"
    exit_code = 6


class StoreFailed(ReprieveError):
    """The store could not be read or written (disk full, I/O error, permission)."""

    code = "store_failed"
    exit_code = 10


class StoreUnavailable(ReprieveError):
    """The store is out of reach for now; the same call may work later."""

    code = "store_unavailable"
    exit_code = 11


class StoreLocked(ReprieveError):
    """Another process holds the store longer than we wait."""

    code = "store_locked"
    exit_code = 12


class StoreCorrupted(ReprieveError):
    """Stored bytes do not match their hash; the message names the object."""

    code = "store_corrupted"
    exit_code = 13


class Interrupted(ReprieveError):
    """Stopped by a signal; what was begun is finished or undone by the next command."""

    code = "interrupted"
    exit_code = 130
