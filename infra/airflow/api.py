"""Airflow's REST API, as far as it is needed to set it up and to wait for it."""

import json
import urllib.error
import urllib.request
from typing import Any

from settings import CONNECTION, POOLS, Place, spark_connection

Json = dict[str, Any]
_NOT_FOUND = 404


class Api:
    """Calls as the user admin."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._token = ""

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        """Call the API; OSError where it doesn't answer or refuses."""
        if not self._token:
            login = {"username": "admin", "password": self._place.password}
            self._token = self._send("POST", "/auth/token", login)["access_token"]
        try:
            return self._send(method, f"/api/v2{path}", body)
        except urllib.error.HTTPError as error:
            if error.code == 401:
                self._token = ""
            raise

    def exists(self, path: str) -> bool:
        """Say whether there is something at a path."""
        try:
            self.call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code != _NOT_FOUND:
                raise
            return False
        return True

    def set_up(self) -> None:
        """Create the pools and the Spark connection where they are not; what the user changed stays."""
        for name, (slots, about) in POOLS.items():
            if not self.exists(f"/pools/{name}"):
                self.call("POST", "/pools", {"name": name, "slots": slots, "description": about})
        if not self.exists(f"/connections/{CONNECTION}"):
            self.call("POST", "/connections", spark_connection())

    def _send(self, method: str, path: str, body: Json | None) -> Json:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._place.url + path, data, headers, method=method)  # noqa: S310 (loopback)
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else {}
