"""The command line: one thin file a command. Heavy imports happen inside the commands, so that
`byheart --help` answers at once."""

from __future__ import annotations

import sys
import warnings

from byheart._plugins import PluginWarning

_other_warnings = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *place: object) -> None:
    """What is left out of another package is one line, without the place in byheart."""
    if issubclass(category, PluginWarning):
        print(f"warning: {message}", file=sys.stderr)
    else:
        _other_warnings(message, category, *place)  # type: ignore[arg-type]


warnings.showwarning = _show_warning
