"""What an agent's events mean for the timeline: a prompt begins a turn, a call is a window, whatever ends it seals it.

    prompt    checkpoint "tidy up"                      what changed before is a person's
    before    checkpoint "before Bash: make"  opens  ┐  what changes in here is the session's
    after     checkpoint "Bash: make"         closes ┘

"After" is not guaranteed: agents leave it out when a call fails or is cancelled. So the end of a turn, the next prompt
and the end of the session close what is still open, as far as nothing goes on in the background. Each event arrives in
a process of its own, possibly twice; what must be known of the ones before is on the timeline.

Works on neutral events (`model.hookevent`); the agents' languages are `agents/`'s. Raises what a checkpoint raises.
"""

from __future__ import annotations

import os
import time

from reprieve.app.hook_moment import actor_of, key_of, opening, step_of, talk_at, telling, turn_of
from reprieve.app.hook_places import Places
from reprieve.app.hook_words import describe, note_for, reaches_out, title
from reprieve.app.recent import Recent, look_back, note_of
from reprieve.app.weaker import sentence
from reprieve.errors import ReprieveError
from reprieve.files import afterwards, promised
from reprieve.files.processes import RUN, orphans, patron
from reprieve.model import talk as moments
from reprieve.model.actor import of_session, plain
from reprieve.model.change import WORKSPACE_FILE
from reprieve.model.hookevent import (
    AFTER,
    BEFORE,
    FAILED,
    OTHER,
    PROMPT,
    SUBAGENT_END,
    TURN_END,
)
from reprieve.model.reporter import Reporter
from reprieve.model.talk import Talk, talk_json
from reprieve.model.window import closes, field, opens, sealed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reprieve.app.gating import Stopped
    from reprieve.app.irreversible import Command
    from reprieve.app.workspace import Workspace
    from reprieve.model.hookevent import HookEvent
    from reprieve.model.timeline import TimelineEntry
    from reprieve.model.window import Window

_DUPLICATES = 40  # entries within which an end that is reported twice is recognised


def handle(
    event: HookEvent,
    *,
    can_note: bool = False,
    variables: Mapping[str, str] | None = None,
    reporter: Reporter | None = None,
    clock: Callable[[], int] = time.time_ns,
    is_last: bool = False,
) -> str:
    """Do what an event asks for; durable when this returns. The answer is a note for the agent's model, or "".

    Raises `gating.Stopped` if the call must not run. With the decision "ask" it may run next, if the person says yes:
    then all that was asked for is done.

    `can_note`: the agent reads a note in answer to this event. `is_last`: the process ends after this, and the system
    closes what it has open when the agent has its answer.
    """
    places = Places(
        event,
        variables=os.environ if variables is None else variables,
        reporter=reporter or Reporter(),
        clock=clock,
        create=event.kind in (BEFORE, PROMPT),
    )
    ended: set[tuple[str, str]] = set()
    try:
        hooks = [
            _Hook(
                event,
                ws,
                outside=tuple(places.outside),
                ended=ended,
                also=tuple(other.id for other in places.found if other is not ws),
                can_note=can_note,
                can_gate=number == 0,  # a call is judged once, however many workspaces it touches
            )
            for number, ws in enumerate(places.found)
        ]
        notes = [hook.run() for hook in hooks]
        if _may_be_elsewhere(event, hooks):
            lost = _elsewhere(event, places, ended, {id for hook in hooks for id in hook.also})
            notes += lost if can_note else []
    except BaseException:
        places.close()  # also the last one: the lock of content that was not committed keeps `gc` waiting
        raise
    if not is_last:
        places.close()
    elif len(hooks) == 1 and not afterwards.leave(lambda: _leave_ticket(hooks[0], places.variables)):
        _leave_ticket(hooks[0], places.variables)
    note = "\n\n".join(note for note in notes if note)
    for hook in hooks:
        if hook.asked is not None:
            hook.asked.note = note
            raise hook.asked
    return note


def _leave_ticket(hook: _Hook, variables: Mapping[str, str]) -> None:
    """Let the session's next call be answered by a promise. When the agent has its answer, if there is such a time."""
    from reprieve.app.promising import leave_ticket, session_of

    try:
        leave_ticket(hook.ws, session_of(hook.event, variables))
    except (ReprieveError, OSError):
        return  # the next command meets the same, and says it


def _may_be_elsewhere(event: HookEvent, hooks: list[_Hook]) -> bool:
    """Whether other workspaces have to be looked at, which costs more the more of them there are."""
    if event.kind == BEFORE:
        return False
    if event.kind in (AFTER, FAILED) and any(hook.is_found for hook in hooks):
        known = {hook.ws.id for hook in hooks}
        return any(not known.issuperset(hook.also) for hook in hooks)
    return True


def _elsewhere(event: HookEvent, places: Places, ended: set[tuple[str, str]], also: set[str]) -> list[str]:
    """Close what the session has open in other workspaces: an agent may have left the folder, or deleted it.

    What its model has to know of those that it deleted.
    """
    notes = []
    who = of_session(event.agent, event.session)
    known = {ws.id for ws in places.found}
    for record in places.others(known, who=who, also=also):
        with places.open(record) as ws:
            if ws.id in known:
                continue
            hook = _Hook(event, ws, outside=(), ended=ended, also=(), can_note=False, is_elsewhere=True)
            hook.run()
            if hook.has_closed and not os.path.isdir(ws.root):
                from reprieve.app.gone import said_gone

                text, hints = said_gone(ws)
                text = ". ".join((text, *(f"Hint: {hint}" for hint in hints)))
                ws.reporter.warn(text)
                notes.append(f"Reprieve: {text}. Tell the user.")
    return notes


def _call(window: Window) -> tuple[str, str]:
    """What tells that windows of two workspaces are of one call."""
    return window.actor, window.key or window.step


class _Hook:
    """One event in one workspace."""

    def __init__(
        self,
        event: HookEvent,
        ws: Workspace,
        *,
        outside: tuple[str, ...],
        ended: set[tuple[str, str]],
        also: tuple[str, ...],
        can_note: bool,
        is_elsewhere: bool = False,
        can_gate: bool = False,
    ) -> None:
        self.event, self.ws, self.outside, self.can_note = event, ws, outside, can_note
        self.can_gate = can_gate
        self.is_elsewhere = is_elsewhere
        self.ended = ended  # calls that a prompt ended, in any workspace so far
        self.also = also  # ids of the other workspaces that the call has a window in
        self.who = of_session(event.agent, event.session)
        self.actor = actor_of(event)
        self.step = step_of(event)
        self.recent = Recent()
        self.note = ""
        self.weaker = ""  # what reprieve.toml asks for since the step that ends here
        self.has_closed = False  # a window was closed here
        self.is_found = False  # the call that the event is about has a window here
        self.asked: Stopped | None = None  # what the person is to be asked before the call runs

    def run(self) -> str:
        event = self.event
        # the lock is held from looking to writing: two reports of one call must not both find it new
        with self.ws.store.lock(self.ws.id):
            promised.keep(self.ws.capture)
            if event.kind == BEFORE:
                self._before()
            elif event.kind in (AFTER, FAILED):
                self._after()
            elif event.kind == PROMPT:
                self._prompt()
            else:
                self._end()
            if self.note and look_back(self.ws.timeline, self.who, inner=event.parent or "").moves:
                self.note = ""  # nothing was recorded by which we would know that it is told
        return "\n\n".join(filter(None, (self.note, self.weaker)))

    # -- the events

    def _prompt(self) -> None:
        """A turn begins. What the main agent had open is over, and so is what sub-agents did inside of that.

        Others may go on: those in the background.
        """
        doomed: list[Window] = []
        for window in self._open():
            is_inner = window.parent in {w.id for w in doomed}
            if not window.is_background and (window.actor == self.who or is_inner or _call(window) in self.ended):
                doomed.append(window)  # whoever is inside was opened later
        if self.is_elsewhere and not doomed:
            return
        self._look()
        for window in reversed(doomed):
            self.ended.add(_call(window))
            self._close(window, is_guess=True)
        if self.is_elsewhere:
            return  # the turn is counted where it is told
        event, last = self.event, self.recent.talk
        prompt = (event.prompt or "").strip()
        if last is not None and self._is_same_turn(last, title(prompt)):
            return
        turn = last.turn + 1 if last is not None else 1
        talk = self._talk(moments.PROMPT, turn)
        self.ws.checkpoint(title(prompt) or f"turn {turn}", note=note_for(prompt), data=f"{{{talk_json(talk)}}}")

    def _is_same_turn(self, last: Talk, label: str) -> bool:
        """Whether the prompt was reported before: by the entry of another scope, or of another agent's file."""
        if last.at != moments.PROMPT:
            return False
        for mine, known in ((self.event.turn, last.turn_id), (self.event.message_id, last.message)):
            if mine and known:
                return mine == known
        entry, _ = self.recent.talks[0]
        # the same words after a rollback are said again, not reported again
        return entry.label == label and all(move.seq < entry.seq for move in self.recent.moves)

    def _before(self) -> None:
        self._look()
        event = self.event
        mine = [window for window in self._open() if window.actor == self.actor]
        _, _, now = self.ws.capture.author()
        # one whose process is gone is over: the same call once more, after the agent was started anew
        same = next((window for window in mine if self._is_this(window) and window in now.open), None)
        commands: tuple[Command, ...] = ()
        if event.command and self.can_gate:
            is_again = same is not None and bool(self.step or event.tells_end)
            commands = self._gate(event.command, is_again=is_again)
        if same is not None and (self.step or event.tells_end):
            if not self.step:
                # a second report of the same call, or a second call just like it: there will be as many ends; but what
                # is asked about again did not run, or is one call
                self._alter(same.replace(count=same.count + (self.asked is None)))
            return
        if not event.tells_end:
            for window in mine:
                self._close(window, is_guess=True)
        begun = opening(
            event,
            recent=self.recent,
            can_note=self.can_note,
            pid=patron(),  # if the agent is killed nobody reports an end
            parent=self._outer(),
            outside=self.outside,
            beyond=self._beyond_json(),
        )
        it = begun.window
        _, window = self.ws.open_window(
            it.actor,
            it.step,
            label=begun.label,
            note=begun.note,
            turn=it.turn,
            pid=it.pid,
            key=it.key,
            parent=it.parent,
            is_background=it.is_background,
            is_container=it.is_container,
            data=begun.data,
        )
        if commands:
            from reprieve.app import gating

            gating.begin(self.ws, event, window.id, commands)

    def _gate(self, command: str, *, is_again: bool) -> tuple[Command, ...]:
        """The commands of a call that are to be recorded. Raises `gating.Stopped` if it must not run."""
        if self.ws.config.policy_mode != "autopilot" and not reaches_out(command):
            return ()
        from reprieve.app import gating

        commands, self.asked = gating.look(self.ws, self.event, is_again=is_again)
        return commands

    def _after(self) -> None:
        event = self.event
        self._look(least=_DUPLICATES)
        for window in self._open():
            if not self._is_this(window) or window.actor != self.actor:
                continue
            self.also = self._also_of(window.opened)
            self.is_found = True
            self._finish(window.id)
            if event.is_background or window.is_background:
                if not window.is_background:
                    self._alter(window.replace(is_background=True))
                return  # it answered and goes on
            if window.count > 1:
                self._alter(window.replace(count=window.count - 1))
            else:
                self._close(window)
            return
        late = self._late()
        if late is None or (self.is_elsewhere and not late[0]):
            return
        id, before = late
        if id:
            self.also = self._also_of(before)
            self._finish(id)
        if event.is_refused or (event.kind == FAILED and not id):
            return
        # its beginning was never reported, or what seemed to be its end was not: what is new here is the agent's
        head = self.ws.timeline.head()
        before = before or (head.id if head is not None else "")
        talk = talk_json(self._talk(moments.END, self._turn()))
        label = f"{title(describe(event))} ({'its end came late' if id else 'its beginning was not seen'})"
        data = sealed(before, talk) if before else f"{{{talk}}}"
        made = self.ws.checkpoint(label, actor=self.actor, step=self.step, data=data, closes=id, only_changes=True)
        self._look_at_settings(before, made.entry)

    def _late(self) -> tuple[str, str] | None:
        """The window of the call that ends now though none is open, and the checkpoint before it; "" if never seen.

        None if its end was reported before. A guess is no report: then the call went on until now.
        """
        for entry, talk in self.recent.talks:
            if talk.call == (self.event.call_id or "") and talk.key == key_of(self.event):
                if talk.at != moments.END:
                    return opens(entry.data), entry.id
                return (closes(entry.data), field(entry.data, "before")) if talk.is_guess else None
        return "", ""

    def _end(self) -> None:
        """The end of a turn, of a sub-agent, of the session, or of a batch of calls."""
        event = self.event
        doomed = [window for window in self._open() if self._is_over(window)]
        if doomed or (event.kind == TURN_END and event.is_background):
            self._look()
        for window in doomed:
            self._close(window, is_guess=event.kind != OTHER)
        if event.kind == TURN_END and event.is_background and not self.is_elsewhere:
            self._keep_watching()

    def _is_over(self, window: Window) -> bool:
        event = self.event
        if event.kind == OTHER:
            is_named = window.step in {f"call:{plain(call)}" for call in event.ended}
            return is_named and not window.is_background
        if event.kind == SUBAGENT_END:
            return event.parent is not None and window.actor == self.actor and not event.is_background
        if event.kind == TURN_END and event.is_background:
            return window.actor == self.who and not window.is_background
        return True

    def _keep_watching(self) -> None:
        """Something goes on though the turn is over: what it writes is not a person's."""
        if not any(window.is_background for window in self._open()):
            turn = self._turn()
            talk = self._talk(moments.CALL, turn)
            self.ws.open_window(
                self.who,
                "",
                label="before work in the background",
                turn=turn,
                pid=patron(),
                is_background=True,
                data=f"{{{talk_json(talk)}}}",
            )

    # -- what they share

    def _is_this(self, window: Window) -> bool:
        """Whether it is that of the call that the event is about."""
        return window.step == self.step if self.step else window.key == self.event.input_key

    def _alter(self, window: Window) -> None:
        """Bring an open window up to date."""
        self.ws.checkpoint(data=sealed(window.opened), alters=window)

    def _finish(self, window: str, *, is_guess: bool = False) -> None:
        """Write down what became of the effects of a window's call."""
        event = self.event
        if (is_guess or event.command) and os.path.exists(os.path.join(self.ws.home, "effects.db")):
            from reprieve.app import gating

            gating.finish(self.ws, window, "unknown" if is_guess else "refused" if event.is_refused else event.kind)

    def _look(self, *, least: int = 0) -> None:
        self.recent = look_back(self.ws.timeline, self.who, inner=self.event.parent or "", least=least)
        if self.can_note and self.recent.moves:
            self.note = note_of(self.ws.capture, self.recent.moves, self.ws.root)

    def _open(self) -> list[Window]:
        """The session's windows, oldest first."""
        _, last, _ = self.ws.capture.author()
        return [w for w in last.open if w.actor == self.who or w.actor.startswith(self.who + "/")]

    def _outer(self) -> str:
        """Id of the window that this call is inside of: that of the call that had the sub-agent work, or of a run."""
        if self.event.parent is not None:
            for window in reversed(self._open()):
                if window.is_container and window.actor != self.actor:
                    return window.id
        if RUN not in os.environ:
            return ""
        from reprieve.app.run import outer_window

        return outer_window(self.ws)

    def _beyond_json(self) -> str:
        """More of the data of the checkpoint before a call: where else it is at work."""
        also = f',"also":"{",".join(self.also)}"' if self.also else ""
        if not self.outside:
            return also
        from reprieve.app.outside import outside_json

        return f"{also},{outside_json(self.outside)}"

    def _also_of(self, before: str) -> tuple[str, ...]:
        opened = self.ws.timeline.get(before)
        return tuple(filter(None, field(opened.data, "also").split(","))) if opened is not None else ()

    def _turn(self) -> int:
        return turn_of(self.event, self.recent.talk)

    def _talk(self, at: str, turn: int) -> Talk:
        return talk_at(self.event, at, turn, recent=self.recent, can_note=self.can_note)

    def _author(self, window: Window) -> str:
        """Who worked until now, if it is only this window's process that seems to be gone.

        Its end is being reported, so the agent lives; what died was something between it and us. "" where that does
        not help.
        """
        _, last, now = self.ws.capture.author()
        dead = [w for w in last.open if w not in now.open]
        return last.author() if dead == [window] else ""

    def _look_at_settings(self, before: str, end: TimelineEntry) -> None:
        """Tell the agent what its step wrote into reprieve.toml without effect; the person reads it there, too."""
        if not self.can_note or not self.ws.config.weaker:
            return
        opened = self.ws.timeline.get(before)
        changes = self.ws.capture.changes_between(opened.seq, end.seq) if opened is not None else []
        if any(path == WORKSPACE_FILE for path, _, _ in changes):
            text = sentence(self.ws.config.weaker, is_new=True)
            self.weaker = f"Reprieve: {text}. Tell the user. Only they can accept it, in a terminal of their own."

    def _left(self, opened: TimelineEntry | None) -> tuple[tuple[int, int], ...]:
        """Processes that a shell's call left behind: what they write is not a person's."""
        if opened is None or self.event.command is None:
            return ()
        return orphans(self.ws.root, (self.ws.clock() - opened.created_at) / 1_000_000_000)

    def _close(self, window: Window, *, is_guess: bool = False) -> None:
        if is_guess:
            self._finish(window.id, is_guess=True)
        opened = self.ws.timeline.get(window.opened)
        label = opened.label.removeprefix("before ") if opened is not None else window.step
        if self.event.kind == FAILED:
            label += " (failed)"
        elif is_guess:
            label += " (its end was not reported)"
        began = moments.talk_of(opened.data) if opened is not None else None
        last = self.recent.talk
        turn = self.recent.turn_at_end(window)
        talk = Talk(
            self.who,
            moments.END,
            turn=turn,
            turn_id=last.turn_id if last is not None and last.turn == turn else "",
            call=began.call if began is not None else "",
            key=window.key,
            is_guess=is_guess,
        )
        talk = telling(self.event, talk, recent=self.recent, can_note=self.can_note)
        actor = "" if is_guess else self._author(window)
        made = self.ws.close_window(window, label=label, more=talk_json(talk), left=self._left(opened), actor=actor)
        self.has_closed = True
        self._look_at_settings(window.opened, made.entry)
        # the entries since the look are our own: nothing new to tell, and the count goes on from here
        moves = () if self.can_note else self.recent.moves
        tip = self.ws.timeline.tip()
        if tip is not None:
            known = tip.seq if talk.told == self.recent.head else self.recent.known
            self.recent = Recent(((tip, talk), *self.recent.talks), moves, tip.seq, known)
