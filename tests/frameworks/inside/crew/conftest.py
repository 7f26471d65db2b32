"""CrewAI's own reporting is off, and its files are not in the home directory. It reads both when it is imported."""

from __future__ import annotations

import os
import tempfile
import warnings

_storage = tempfile.TemporaryDirectory(prefix="reprieve-crewai-")
os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_STORAGE_DIR": _storage.name,
    "OTEL_SDK_DISABLED": "true",
}
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Cannot set an attribute on 'crewai.rag'", ImportWarning)
    import crewai  # noqa: F401
