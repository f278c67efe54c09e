"""python -m bench.suite [--medium|--long|--tiny] [--rounds N] [--only SECTION,...] | --render FILE: see docs/performance.md."""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.support.broker_process import REPOSITORY
from tests.support.kafka import fetched_jars

from ..broker import note
from . import report
from .plan import FORMS, Bench, describe_machine
from .results import Results
from .sections import SECTIONS
from .subjects import FORMS_OF_KWIRE, NAMES, PURE, Subject
from .tools import TROUBLE, Missing

PAGE = REPOSITORY / "docs" / "performance.md"


def main() -> None:
    """Measure and write the page, or write the page from results."""
    parser = argparse.ArgumentParser(prog="python -m bench.suite", description=__doc__)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--medium", action="store_const", const="medium", dest="form")
    form.add_argument("--long", action="store_const", const="long", dest="form")
    form.add_argument("--tiny", action="store_const", const="tiny", dest="form")
    parser.add_argument(
        "--rounds",
        type=int,
        help="number of rounds; default: that of the chosen form",
    )
    parser.add_argument(
        "--only", default="", help=f"run only these sections, of {', '.join(SECTIONS)}"
    )
    parser.add_argument(
        "--subjects",
        help=f"brokers to measure, of {', '.join(NAMES)}, separated by commas; default: all, but {PURE} only with --medium",
    )
    parser.add_argument(
        "--directory", type=Path, help="directory for the brokers' data; default: a new one"
    )
    parser.add_argument("--results", type=Path, help="file for the raw figures, as JSON")
    parser.add_argument(
        "--page",
        type=Path,
        default=PAGE,
        help="page to write the comparison to; the goals and tables go to pages in the folder results next to it",
    )
    parser.add_argument(
        "--render", type=Path, metavar="FILE", help="write the page from the figures in this file"
    )
    options = parser.parse_args()
    if options.render is not None:
        report.write(Results.load(options.render), options.page)
        return
    form_name = options.form or "short"
    measured = FORMS[form_name]
    if options.rounds is not None:
        if options.rounds < 1:
            parser.error(f"--rounds {options.rounds}: at least 1")
        measured = replace(measured, rounds=options.rounds)
    only = [word for word in options.only.split(",") if word]
    unknown = set(only) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown sections: {', '.join(sorted(unknown))}")
    path = options.results
    if path is None:
        folder = options.page.with_suffix("")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "results.json"
    default = ",".join(name for name in NAMES if name != PURE or form_name == "medium")
    machine = {**describe_machine(), "rounds": measured.rounds}
    results = Results(form=form_name, machine=machine, path=path)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    # So that ending the run also ends the brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for package in ("kwire", "server"):  # like those of an installed kwire
        compileall.compile_dir(REPOSITORY / package, quiet=1)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="kwire-bench-") as directory:
        root = Path(directory)
        settings = {"log.retention.check.interval.ms": "2000"} if form_name == "long" else {}
        bench = Bench(measured, [], results, root, time.monotonic())
        for name in (options.subjects or default).split(","):
            jars = name in FORMS_OF_KWIRE or fetched_jars(name.replace("Apache Kafka ", "kafka-"))
            if isinstance(jars, str):
                bench.skip(name, jars)
            else:
                bench.subjects.append(Subject(name, root / name.replace(" ", "-"), settings))
        try:
            for name, section in SECTIONS.items():
                if only and name not in only and name != "start":
                    continue
                bench.progress(f"== {name}")
                began = time.monotonic()
                try:
                    section(bench)
                except (*TROUBLE, Missing) as problem:
                    bench.skip(f"the rest of {name}", problem)
                results.machine.setdefault("seconds", {})[name] = round(time.monotonic() - began)
        finally:
            for subject in bench.subjects:
                subject.stop()
    results.save()
    report.write(results, options.page)
    note(f"wrote {options.page} and {path} after {time.monotonic() - bench.began:.0f} s")


if __name__ == "__main__":
    main()
