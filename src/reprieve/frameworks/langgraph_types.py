"""Which types of LangChain and LangGraph a thread can hold beside plain data: messages, sends, interrupts.

A closed list, by class. Messages are taken and made field by field, as they were: nothing that was stored is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from langchain_core import messages
from langchain_core.documents import Document
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot

from reprieve.threads.values import Kind, Plain, Types, Wrapper, raw_model

_MESSAGES = (
    "AIMessage", "AIMessageChunk", "ChatMessage", "ChatMessageChunk", "FunctionMessage", "FunctionMessageChunk",
    "HumanMessage", "HumanMessageChunk", "RemoveMessage", "SystemMessage", "SystemMessageChunk", "ToolMessage",
    "ToolMessageChunk",
)  # fmt: skip
_EXTRA = "+"  # no field can have this name


def langgraph_types(allow: Iterable[type] = ()) -> Types:
    """The list, and classes of the caller's own."""
    kinds = [_model(f"message.{name}", getattr(messages, name)) for name in _MESSAGES]
    kinds.append(_model("document", Document))
    kinds.append(Kind("send", Send, _dump_send, _load_send))
    kinds.append(
        Kind(
            "item",
            Item,
            lambda value, plain: plain(value.dict()),
            lambda value, revive: Item(**{**revive(value), "namespace": tuple(value["namespace"])}),
        )
    )
    snapshot = Wrapper("snapshot", _DeltaSnapshot, lambda value: value.value, _DeltaSnapshot)
    known = [Interrupt, Command, Overwrite, StateSnapshot, PregelTask]
    return Types(kinds, wrappers=[snapshot], allow=[*known, *allow])


def _model(tag: str, cls: Any) -> Kind:
    def dump(value: Any, plain: Callable[[Any], Plain]) -> Plain:
        fields = {name: plain(item) for name, item in value.__dict__.items()}
        if value.__pydantic_extra__:
            fields[_EXTRA] = {name: plain(item) for name, item in value.__pydantic_extra__.items()}
        return fields

    def load(value: Plain, revive: Callable[[Plain], Any]) -> Any:
        fields = {name: revive(item) for name, item in value.items()}
        extra = fields.pop(_EXTRA, {})
        return raw_model(cls, fields, extra, set(fields))

    return Kind(tag, cls, dump, load, is_model=True)


def _dump_send(value: Send, plain: Callable[[Any], Plain]) -> Plain:
    timeout = getattr(value, "timeout", None)
    return [value.node, plain(value.arg), *([] if timeout is None else [plain(timeout)])]


def _load_send(value: Plain, revive: Callable[[Plain], Any]) -> Any:
    node, arg, *timeout = value
    return Send(node, revive(arg), **({"timeout": revive(timeout[0])} if timeout else {}))
