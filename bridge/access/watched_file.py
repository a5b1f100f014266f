"""The content of a file, read again when the file is replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.security.file_stamps import stamps_of

log = get_logger(__name__)

Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """The content of one file. While the file cannot be used, the last content stays in use."""

    def __init__(self, key: str, path: Path, read: Callable[[Path], Content]) -> None:
        """`read` raises ConfigurationError, OSError or ValueError. Raises ConfigurationError when
        the file cannot be used now.
        """
        self._key = key
        self._path = path
        self._read = read
        self._stamp = stamps_of([path])
        try:
            self._content = read(path)
        except (OSError, ValueError) as error:
            raise ConfigurationError(key, str(path), f"a file that can be used ({error})") from error

    def content(self) -> Content:
        """The content as it is now."""
        stamp = stamps_of([self._path])
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._content = self._read(self._path)
            except (ConfigurationError, OSError, ValueError) as error:
                log.error("a changed file cannot be used", key=self._key, file=str(self._path), reason=str(error))  # noqa: TRY400
            else:
                log.info("a changed file was read again", key=self._key, file=str(self._path))
        return self._content
