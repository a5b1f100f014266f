"""Have Apache Kafka's StandardAuthorizer judge every case: `python -m tests.golden.acls` writes
`judged.json` anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from deploy import parts
from deploy.jar_sets import KAFKA
from tests.golden.acls import JUDGED
from tests.golden.acls.cases import all_cases

WITHIN_S = 300


def main() -> int:
    """Write the verdicts."""
    cases = [case._asdict() for case in all_cases()]
    command = [str(parts.java().executable), "-cp", f"{KAFKA.directory}/*", str(Path(__file__).parent / "Judge.java")]
    answered = subprocess.run(
        command, input=json.dumps(cases), stdout=subprocess.PIPE, text=True, timeout=WITHIN_S, check=True
    )
    verdicts = json.loads(answered.stdout.splitlines()[-1])
    lines = [
        json.dumps({**case, "allowed": allowed}, sort_keys=True) for case, allowed in zip(cases, verdicts, strict=True)
    ]
    body = ",\n  ".join(lines)
    JUDGED.write_text(f'{{"judge": "Apache Kafka {KAFKA.version}", "cases": [\n  {body}\n]}}\n', encoding="utf-8")
    print(f"{len(lines)} verdicts in {JUDGED.name}, {sum(verdicts)} allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
