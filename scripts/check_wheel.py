"""Builds the wheel and tries it in a clean environment with the base dependencies alone.

Catalogs, library and profiles must ship, tests must not, and nothing may pull torch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # modules that were moved since would ship again
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(where), str(ROOT), cwd=where)
        wheel = next(where.glob("*.whl"))
        names = zipfile.ZipFile(wheel).namelist()
        expect(any(n.startswith("scenarios/library/") and n.endswith(".yaml") for n in names), "library scenarios ship")
        expect(any(n.startswith("calibration/profiles/") and n.endswith(".json") for n in names), "profiles ship")
        composed = [
            n for n in names if n.startswith("calibration/profiles/") and n.count("/") == 3 and n.endswith(".json")
        ]
        expect(len(composed) > 100, f"profiles of data-centre GPUs ship ({len(composed)})")
        expect(any(n.startswith("calibration/quality/") and n.endswith(".json") for n in names), "quality ships")
        for kind in ("scenarios/serving_profiles/", "calibration/measured/sources/"):
            expect(any(n.startswith(kind) and n.endswith(".yaml") for n in names), f"{kind} ships")
        expect("studies/texts/plain-english.txt" in names, "the text that quality is measured on ships")
        expect("studies/texts/glossary.yaml" in names, "the glossary ships")
        expect(any(n.startswith("studies/validations/shipped/") for n in names), "validations ship")
        pages = {n.split("/")[1] for n in names if n.startswith("dashboard/") and n.endswith("/page.py")}
        expect(pages == {p.parent.name for p in (ROOT / "dashboard").glob("*/page.py")}, f"pages ship ({len(pages)})")
        expect({"dashboard/theme.toml", "dashboard/icon.svg"} <= set(names), "the theme ships")
        expect(not any(n.startswith(("tests/", "bench/", "scripts/")) for n in names), "tests do not ship")

        environment = where / "env"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        run(str(python), "-m", "pip", "install", "--quiet", str(wheel), cwd=where)
        installed = run(str(python), "-m", "pip", "list", "--format", "json", cwd=where)
        heavy = {"torch", "triton", "numba", "streamlit"} & {package["name"] for package in json.loads(installed)}
        expect(not heavy, f"the base install pulls no {', '.join(sorted(heavy)) or 'torch'}")

        servetwin = str(environment / "bin" / "servetwin")
        result = json.loads(run(servetwin, "run", "demo", "--json", cwd=where))
        expect(result["completed"] > 0, f"the installed command simulates the demo ({result['completed']} requests)")
        listed = json.loads(run(servetwin, "profiles", "--hardware", "H200", "--json", cwd=where))["profiles"]
        expect(len(listed) > 20, f"the installed command lists the profiles of an H200 ({len(listed)})")
        schema = json.loads(run(servetwin, "schema", cwd=where))
        expect("properties" in schema, "the installed command prints the schema")
    print("1 passed, 0 failed")


def run(*command: str, cwd: Path) -> str:
    # A checkout on the path would hide what the wheel lacks.
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"does not hold: {what}")
    print(f"ok: {what}")


if __name__ == "__main__":
    main()
