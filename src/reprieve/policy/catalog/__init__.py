"""The rule catalog: what known commands and HTTP requests do, and how each is taken back."""

from reprieve.policy.catalog.load import load
from reprieve.policy.catalog.model import (
    Account,
    Capture,
    Catalog,
    CommandMatch,
    CommandRule,
    HttpInverse,
    HttpMatch,
    HttpRule,
    Inverse,
    InverseRequest,
    Step,
    ToolRule,
)
from reprieve.policy.catalog.template import (
    captures,
    instantiate,
    instantiate_request,
    read_capture,
)

__all__ = [
    "Account",
    "Capture",
    "Catalog",
    "CommandMatch",
    "CommandRule",
    "HttpInverse",
    "HttpMatch",
    "HttpRule",
    "Inverse",
    "InverseRequest",
    "Step",
    "ToolRule",
    "captures",
    "instantiate",
    "instantiate_request",
    "load",
    "read_capture",
]
