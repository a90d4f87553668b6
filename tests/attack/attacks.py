"""What was attacked, and how it ended."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

#: Outcome of an attack that did harm.
FAILED = "failed"


def how_many(name: str, few: int) -> int:
    """The number of attacks of a kind: a few, or what the variable ATTACK_NAME says."""
    return int(os.environ.get(f"ATTACK_{name.upper()}", few))


@dataclass
class Attacks:
    """The attacks of one test."""

    test: str
    attacks: list[dict[str, Any]] = field(default_factory=list)

    def note(self, target: str, attack: str, outcome: str, why: str = "") -> None:
        self.attacks.append({"target": target, "attack": attack, "outcome": outcome, "why": why})

    def fail(self, target: str, attack: str, why: str) -> None:
        self.note(target, attack, FAILED, why)

    @property
    def failures(self) -> list[str]:
        return [
            f"{it['target']}: {it['attack']}: {it['why']}"
            for it in self.attacks
            if it["outcome"] == FAILED
        ]

    def check(self) -> None:
        """Fail the test if an attack did harm; names the first ones."""
        failures = self.failures
        listed = "\n".join(failures[:20])
        assert not failures, f"{len(failures)} of {len(self.attacks)} attacks:\n{listed}"

    def rows(self) -> list[dict[str, Any]]:
        return [{"test": self.test, **it} for it in self.attacks]

    def table(self) -> list[str]:
        """One line of Markdown per target."""
        lines = []
        for target in dict.fromkeys(it["target"] for it in self.attacks):
            own = [it["outcome"] for it in self.attacks if it["target"] == target]
            sound = Counter(outcome for outcome in own if outcome != FAILED)
            listed = ", ".join(f"{outcome}: {count}" for outcome, count in sorted(sound.items()))
            failed = own.count(FAILED)
            lines.append(f"| {self.test} | {target} | {len(own)} | {listed} | {failed} |")
        return lines

    def failed(self) -> list[str]:
        """One line of Markdown per failure."""
        return [f"* `{self.test}`: {' '.join(it.split())}" for it in self.failures]
