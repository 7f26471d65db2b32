"""Record the HTTP calls of this Python process, so that they can be taken back. The public name of it.

import reprieve.http

reprieve.http.install()          # httpx, requests, urllib3, aiohttp, urllib
"""

from __future__ import annotations

from reprieve.gateways.python_http import install, uninstall

__all__ = ["install", "uninstall"]
