"""The replacement of a name that torch.managed refuses."""

from __future__ import annotations

from typing import Any, NoReturn


class Refused:
    """Raises when it is called, entered, or asked for an attribute, for every kind of name in torch.cuda."""

    def __init__(self, name: str, reason: str) -> None:
        self._name, self._reason = name, reason

    def _refuse(self) -> NoReturn:
        raise RuntimeError(f"torch.managed.{self._name} is refused: {self._reason}")

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Raises the reason."""
        self._refuse()

    def __enter__(self) -> NoReturn:
        self._refuse()

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):  # Python's own questions, such as copy's and inspect's
            raise AttributeError(attribute)
        self._refuse()

    def __repr__(self) -> str:
        return f"<torch.managed.{self._name}, refused: {self._reason}>"
